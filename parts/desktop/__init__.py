"""burnish on somebody's own machine: its set-up, its service, a chat and a demo."""
