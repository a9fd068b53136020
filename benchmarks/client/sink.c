/* A server that streams OpenAI-style server-sent events at an exact pace and notes when it sent each chunk.
 *
 * It stands in for an engine of unlimited speed, so that what is measured is the client. One thread, epoll,
 * no allocation per chunk. Every chunk is one write of one HTTP chunk, as uvicorn does it, and carries
 * "sent_ns", the monotonic clock of this machine just before the write.
 *
 * usage: sink PORT CHUNKS_PER_S TOKENS_PER_CHUNK TTFT_MS [step]
 *   CHUNKS_PER_S  of each stream; 0: as fast as the socket takes them
 *   step          all streams send in the same instant, as an engine does after each step of its batch;
 *                 otherwise each stream has a random phase
 *
 * POST anything: a stream of ceil(max_tokens / TOKENS_PER_CHUNK) chunks. The first token id of every chunk is the
 *                number of the request, so that a record can be matched with the log. "#17" in the body tags it 17.
 * GET /stats: counters.  GET /log: a line per request: number, tag or -1, received_ns, sent_ns of each chunk.
 * GET /reset: forget the log.  GET anything else: a list with the model "sink".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILES 65536
#define NOT_DUE (-1)

typedef struct {
    int64_t received_ns;
    int tag, planned, sent;
    int64_t *sent_ns;
} Request;

typedef struct {
    int fd;
    char *in;
    size_t in_len, in_cap;
    char *out; /* what the socket did not take yet */
    size_t out_len, out_at, out_cap;
    int streaming, chat, ids, usage, prompt_tokens;
    int request; /* index into requests */
    int64_t due_ns;
    int heap_at;
} Conn;

static Conn *conns[MAX_FILES];
static Request *requests;
static int request_count, request_cap, active, peak_active;
static int64_t chunks_sent, closed_early;
static Conn *heap[MAX_FILES];
static int heap_len, epoll_fd, tokens_per_chunk, in_step;
static int64_t period_ns, ttft_ns;

static void *must(void *p) {
    if (p == NULL) {
        perror("memory");
        exit(1);
    }
    return p;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A binary heap of connections by due time; each knows its place in it. */
static void heap_put(int at, Conn *c) {
    heap[at] = c;
    c->heap_at = at;
}

static void heap_up(int at) {
    Conn *c = heap[at];
    while (at > 0 && heap[(at - 1) / 2]->due_ns > c->due_ns) {
        heap_put(at, heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(at, c);
}

static void heap_down(int at) {
    Conn *c = heap[at];
    for (;;) {
        int child = 2 * at + 1;
        if (child >= heap_len) break;
        if (child + 1 < heap_len && heap[child + 1]->due_ns < heap[child]->due_ns) child++;
        if (heap[child]->due_ns >= c->due_ns) break;
        heap_put(at, heap[child]);
        at = child;
    }
    heap_put(at, c);
}

static void unschedule(Conn *c) {
    int at = c->heap_at;
    if (at == NOT_DUE) return;
    c->heap_at = NOT_DUE;
    Conn *last = heap[--heap_len];
    if (last == c) return;
    heap_put(at, last);
    heap_up(at);
    heap_down(last->heap_at);
}

static void schedule(Conn *c, int64_t due_ns) {
    if (in_step && period_ns) due_ns = (due_ns + period_ns - 1) / period_ns * period_ns;
    c->due_ns = due_ns;
    if (c->heap_at == NOT_DUE) {
        heap_put(heap_len++, c);
        heap_up(heap_len - 1);
    } else {
        heap_up(c->heap_at);
        heap_down(c->heap_at);
    }
}

static void drop(Conn *c) {
    if (c->streaming) {
        active--;
        closed_early++;
    }
    unschedule(c);
    conns[c->fd] = NULL;
    close(c->fd);
    free(c->in);
    free(c->out);
    free(c);
}

static void watch(Conn *c, uint32_t events) {
    struct epoll_event e = {.events = events, .data.fd = c->fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e);
}

/* 0 when the connection is gone. */
static int send_all(Conn *c, const char *data, size_t len) {
    ssize_t n = 0;
    if (c->out_len == 0) {
        n = send(c->fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) {
            drop(c);
            return 0;
        }
        if (n < 0) n = 0;
        if ((size_t)n == len) return 1;
        watch(c, EPOLLIN | EPOLLOUT);
    }
    size_t rest = len - (size_t)n;
    if (c->out_at + c->out_len + rest > c->out_cap) {
        c->out_cap = 2 * (c->out_at + c->out_len + rest);
        c->out = must(realloc(c->out, c->out_cap));
    }
    memcpy(c->out + c->out_at + c->out_len, data + n, rest);
    c->out_len += rest;
    return 1;
}

static int put_event(char *to, const char *json) {
    return sprintf(to, "%zx\r\ndata: %s\n\n\r\n", strlen(json) + 8, json);
}

static int write_chunk(Conn *c, int64_t sent_ns) {
    static char json[8192], wire[16384];
    Request *r = &requests[c->request];
    int last = r->sent + 1 == r->planned, n = 0;
    n += sprintf(json + n, "{\"id\":\"cmpl-%d\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"sink\",\"choices\":[{\"index\":0,",
                 c->request, c->chat ? "chat.completion.chunk" : "text_completion");
    n += sprintf(json + n, c->chat ? "\"delta\":{\"role\":\"assistant\",\"content\":\"" : "\"text\":\"");
    for (int i = 0; i < tokens_per_chunk; i++) n += sprintf(json + n, " word");
    n += sprintf(json + n, "\"%s,\"logprobs\":null,\"finish_reason\":%s", c->chat ? "}" : "", last ? "\"length\"" : "null");
    if (c->ids) {
        n += sprintf(json + n, ",\"token_ids\":[%d", c->request);
        for (int i = 1; i < tokens_per_chunk; i++) n += sprintf(json + n, ",%d", 1000 + i);
        n += sprintf(json + n, "]");
    }
    n += sprintf(json + n, "}]");
    int total = (r->sent + 1) * tokens_per_chunk;
    if (c->usage)
        n += sprintf(json + n, ",\"usage\":{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}",
                     c->prompt_tokens, c->prompt_tokens + total, total);
    sprintf(json + n, ",\"sent_ns\":%lld}", (long long)sent_ns);
    int len = put_event(wire, json);
    if (last) {
        sprintf(json, "{\"id\":\"cmpl-%d\",\"object\":\"%s\",\"created\":1700000000,\"model\":\"sink\",\"choices\":[],\"usage\":"
                "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}}",
                c->request, c->chat ? "chat.completion.chunk" : "text_completion",
                c->prompt_tokens, c->prompt_tokens + total, total);
        len += put_event(wire + len, json);
        len += put_event(wire + len, "[DONE]");
        len += sprintf(wire + len, "0\r\n\r\n");
        c->streaming = 0;
        active--;
    }
    return send_all(c, wire, (size_t)len);
}

/* Send every chunk that is due. When the reader is late the pace starts anew: an engine does not catch up. */
static void pump(Conn *c) {
    while (c->streaming && c->out_len == 0) {
        int64_t now = now_ns();
        if (period_ns && c->due_ns > now) {
            schedule(c, c->due_ns);
            return;
        }
        Request *r = &requests[c->request];
        r->sent_ns[r->sent] = now;
        int done = r->sent + 1 == r->planned;
        if (!write_chunk(c, now)) return;
        r->sent++;
        chunks_sent++;
        if (done) break;
        c->due_ns += period_ns;
        if (c->due_ns < now - period_ns) c->due_ns = now;
        if (period_ns == 0) { /* one chunk of each stream in turn */
            schedule(c, now);
            return;
        }
    }
    if (!c->streaming || c->out_len) unschedule(c);
}

static int number_after(const char *body, const char *key, int missing) {
    const char *at = strstr(body, key);
    if (at == NULL) return missing;
    at += strlen(key);
    while (*at == ' ' || *at == ':' || *at == '"') at++;
    return *at >= '0' && *at <= '9' ? atoi(at) : missing;
}

static int is_true(const char *body, const char *key) {
    const char *at = strstr(body, key);
    if (at == NULL) return 0;
    at += strlen(key);
    while (*at == ' ' || *at == ':' || *at == '"') at++;
    return strncmp(at, "true", 4) == 0;
}

static int answer(Conn *c, const char *type, const char *text, size_t len) {
    char head[256];
    int n = sprintf(head, "HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %zu\r\n\r\n", type, len);
    return send_all(c, head, (size_t)n) && send_all(c, text, len);
}

static int get(Conn *c, const char *path) {
    if (strncmp(path, "/log", 4) == 0) {
        char *text;
        size_t len;
        FILE *f = must(open_memstream(&text, &len));
        for (int i = 0; i < request_count; i++) {
            fprintf(f, "%d %d %lld", i, requests[i].tag, (long long)requests[i].received_ns);
            for (int k = 0; k < requests[i].sent; k++) fprintf(f, " %lld", (long long)requests[i].sent_ns[k]);
            fputc('\n', f);
        }
        fclose(f);
        int alive = answer(c, "text/plain", text, len);
        free(text);
        return alive;
    }
    if (strncmp(path, "/reset", 6) == 0 && active == 0) {
        for (int i = 0; i < request_count; i++) free(requests[i].sent_ns);
        request_count = 0;
        peak_active = 0;
        chunks_sent = closed_early = 0;
    }
    char text[512];
    if (strncmp(path, "/stats", 6) == 0 || strncmp(path, "/reset", 6) == 0)
        sprintf(text, "{\"now_ns\":%lld,\"active\":%d,\"peak_active\":%d,\"requests\":%d,\"chunks\":%lld,\"closed_early\":%lld}",
                (long long)now_ns(), active, peak_active, request_count, (long long)chunks_sent, (long long)closed_early);
    else
        strcpy(text, "{\"object\":\"list\",\"data\":[{\"id\":\"sink\",\"object\":\"model\",\"created\":1,\"owned_by\":\"sink\",\"max_model_len\":1000000}]}");
    return answer(c, "application/json", text, strlen(text));
}

/* vLLM's client cannot be given its prompts here; it numbers its requests in a header: "bench-17". */
static int tag_of(const char *head, const char *body) {
    const char *id = strcasestr(head, "\nx-request-id: bench-");
    return id != NULL ? number_after(id + 1, "bench-", -1) : number_after(body, "#", -1);
}

static int begin(Conn *c, const char *path, const char *head, const char *body) {
    static const char stream_head[] =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n";
    if (request_count == request_cap) {
        request_cap = request_cap ? 2 * request_cap : 4096;
        requests = must(realloc(requests, (size_t)request_cap * sizeof(Request)));
    }
    int tokens = number_after(body, "\"max_tokens\"", number_after(body, "\"max_completion_tokens\"", 16));
    int planned = (tokens + tokens_per_chunk - 1) / tokens_per_chunk;
    Request *r = &requests[request_count];
    r->received_ns = now_ns();
    r->planned = planned > 0 ? planned : 1;
    r->tag = tag_of(head, body);
    r->sent = 0;
    r->sent_ns = must(malloc((size_t)r->planned * sizeof(int64_t)));
    c->request = request_count++;
    c->streaming = 1;
    c->chat = strstr(path, "/chat/") != NULL;
    c->ids = is_true(body, "\"return_token_ids\"");
    c->usage = is_true(body, "\"continuous_usage_stats\"");
    c->prompt_tokens = 7;
    if (++active > peak_active) peak_active = active;
    int64_t phase = period_ns && !in_step ? (int64_t)((double)random() / RAND_MAX * (double)period_ns) : 0;
    if (!send_all(c, stream_head, sizeof stream_head - 1)) return 0;
    schedule(c, r->received_ns + ttft_ns + phase);
    return 1;
}

/* One request at a time from what has been read; 0 when the connection is gone. */
static int take_request(Conn *c) {
    while (!c->streaming && c->in_len > 0) {
        c->in[c->in_len] = 0;
        char *end = strstr(c->in, "\r\n\r\n");
        if (end == NULL) return 1;
        size_t head = (size_t)(end - c->in) + 4, length = 0;
        for (char *line = c->in; line < end; line = strstr(line, "\r\n") + 2)
            if (strncasecmp(line, "content-length:", 15) == 0) length = (size_t)atol(line + 15);
        if (c->in_len < head + length) return 1;
        char *path = strchr(c->in, ' ');
        int is_get = strncmp(c->in, "GET ", 4) == 0, alive;
        char saved = c->in[head + length];
        c->in[head + length] = 0;
        char *line_end = strstr(c->in, "\r\n");
        *line_end = 0;
        alive = path == NULL ? (drop(c), 0) : is_get ? get(c, path + 1) : begin(c, path + 1, line_end + 1, c->in + head);
        if (!alive) return 0;
        c->in[head + length] = saved;
        memmove(c->in, c->in + head + length, c->in_len - head - length);
        c->in_len -= head + length;
    }
    return 1;
}

static void readable(Conn *c) {
    for (;;) {
        if (c->in_len + 65537 > c->in_cap) c->in = must(realloc(c->in, c->in_cap = 2 * c->in_cap + 65537));
        ssize_t n = recv(c->fd, c->in + c->in_len, c->in_cap - c->in_len - 1, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            drop(c);
            return;
        }
        if (n < 0) break;
        c->in_len += (size_t)n;
        if (!take_request(c)) return;
    }
    if (c->in_len == 0) { /* ten thousand idle buffers would be most of this process */
        free(c->in);
        c->in = NULL;
        c->in_cap = 0;
    }
}

static void writable(Conn *c) {
    ssize_t n = send(c->fd, c->out + c->out_at, c->out_len, MSG_NOSIGNAL);
    if (n < 0) {
        if (errno != EAGAIN) drop(c);
        return;
    }
    c->out_at += (size_t)n;
    c->out_len -= (size_t)n;
    if (c->out_len) return;
    c->out_at = 0;
    watch(c, EPOLLIN);
    if (c->streaming)
        pump(c);
    else
        take_request(c);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: sink PORT CHUNKS_PER_S TOKENS_PER_CHUNK TTFT_MS [step]\n");
        return 2;
    }
    double rate = atof(argv[2]);
    period_ns = rate > 0 ? (int64_t)(1e9 / rate) : 0;
    tokens_per_chunk = atoi(argv[3]);
    if (tokens_per_chunk < 1 || tokens_per_chunk > 256) {
        fprintf(stderr, "TOKENS_PER_CHUNK is 1 to 256\n");
        return 2;
    }
    ttft_ns = (int64_t)(1e6 * atof(argv[4]));
    in_step = argc > 5;
    srandom(1);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* never outlive the benchmark */
    signal(SIGPIPE, SIG_IGN);
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    int server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[1]))};
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(server, (struct sockaddr *)&where, sizeof where) || listen(server, 16384)) {
        perror("listen");
        return 1;
    }
    epoll_fd = epoll_create1(0);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = server}, events[512];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, server, &e);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct timespec wait = {0, 0}, *timeout = NULL;
        if (heap_len) {
            int64_t left = heap[0]->due_ns - now_ns();
            if (left < 0) left = 0;
            wait.tv_sec = left / 1000000000;
            wait.tv_nsec = left % 1000000000;
            timeout = &wait;
        }
        int n = epoll_pwait2(epoll_fd, events, 512, timeout, NULL);
        for (int i = 0; i < n; i++) {
            int fd = events[i].data.fd;
            if (fd == server) {
                int got;
                while ((got = accept4(server, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                    if (got >= MAX_FILES) {
                        close(got);
                        continue;
                    }
                    setsockopt(got, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                    Conn *c = must(calloc(1, sizeof(Conn)));
                    c->fd = got;
                    c->heap_at = NOT_DUE;
                    conns[got] = c;
                    struct epoll_event ce = {.events = EPOLLIN, .data.fd = got};
                    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, got, &ce);
                }
                continue;
            }
            if (conns[fd] && (events[i].events & EPOLLOUT)) writable(conns[fd]);
            if (conns[fd] && (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))) readable(conns[fd]);
        }
        int64_t now = now_ns();
        for (int budget = heap_len; budget > 0 && heap_len && heap[0]->due_ns <= now; budget--) pump(heap[0]);
    }
}
