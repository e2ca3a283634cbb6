# docs/install.md says how to run it.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
# The build of torch: cpu, or one of CUDA's such as cu128.
ARG TORCH_BACKEND=cpu
RUN pip install --no-cache-dir uv==0.13.9
WORKDIR /build
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
COPY app app
COPY cli cli
COPY terminal terminal
COPY parts parts
COPY learner learner
COPY proxy proxy
COPY training training
COPY adapters adapters
COPY gate gate
COPY config config
COPY system system
COPY agents agents
RUN uv venv /opt/burnish \
    && uv pip install --no-cache --python /opt/burnish/bin/python --torch-backend "${TORCH_BACKEND}" \
        --constraints constraints.txt '.[train]'

FROM python:${PYTHON}
# The embedded engine needs OpenMP. Debian keeps one version of it for a release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home burnish \
    && install --directory --owner=burnish --group=burnish --mode=700 /data /data/adapters
COPY --from=build /opt/burnish /opt/burnish
# On 0.0.0.0 burnish starts only with a BURNISH_API_KEY.
ENV PATH=/opt/burnish/bin:${PATH} \
    BURNISH_HOST=0.0.0.0 \
    BURNISH_PORT=8787 \
    BURNISH_DATA_DIR=/data \
    BURNISH_CACHE_DIR=/data/cache \
    HF_HOME=/data/huggingface
USER 10001:10001
WORKDIR /home/burnish
VOLUME /data
EXPOSE 8787
HEALTHCHECK --start-period=120s --interval=30s --timeout=10s \
    CMD ["python", "-c", "import os, urllib.request as web; web.urlopen(web.Request(f\"http://127.0.0.1:{os.environ['BURNISH_PORT']}/healthz\", headers={'x-burnish-key': os.environ['BURNISH_API_KEY']}), timeout=5)"]
ENTRYPOINT ["burnish"]
CMD ["up"]
