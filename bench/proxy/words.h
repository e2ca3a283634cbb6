// Texts of words from a file, drawn with its frequencies. The file has one word a line, escaped for JSON.
static char*text_; static char**word_; static size_t words_; static unsigned long draw_;
static void read_words(const char*path,unsigned long seed){
  FILE*f=fopen(path,"r"); if(!f){perror(path);exit(2);}
  fseek(f,0,SEEK_END); long n=ftell(f); rewind(f); text_=malloc(n+1); n=fread(text_,1,n,f); text_[n]=0; fclose(f);
  word_=malloc((n/2+1)*sizeof*word_); for(char*w=strtok(text_,"\n");w;w=strtok(0,"\n")) word_[words_++]=w;
  if(!words_){fprintf(stderr,"%s has no words\n",path);exit(2);}
  draw_=seed*0x9E3779B97F4A7C15ul|1; }
static const char*draw_word(void){ draw_^=draw_<<13; draw_^=draw_>>7; draw_^=draw_<<17; return word_[(draw_>>11)%words_]; }
static void draw_text(char*to,int n){ // exactly n bytes
  char*end=to+n; for(;;){ const char*w=draw_word(); int l=strlen(w); if(to+l+1>end)break; memcpy(to,w,l); to+=l; *to++=' '; }
  memset(to,'.',end-to); }
