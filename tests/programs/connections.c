/*
 * Connects, disconnects and breaks connections in ways that stock programs do not.
 *
 * connections ADDRESS PORT reconnect N   the same pair of ports N times, at once, with data
 *                          many N        N connections at the same time on one listener
 *                          refused       nobody listens, or not any more
 *                          backlog       more requests than the listener takes
 *                          killed        the peer dies by SIGKILL while connected
 *                          silent        the peer stops before it answers
 *                          cut           the address goes away while connected (from outside)
 *
 * Ends with 0 if every event came that should, in the time that the parameters allow.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define BYTES 64
/* 16 transmissions of a message, 4.3 seconds each, and what a busy machine adds. */
#define NO_ANSWER_MS 110000
#define SOON_MS 30000

static struct sockaddr_in address;

static void die(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, " (errno: %s)\n", strerror(errno));
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder)
        die("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static long kilobytes(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%*d %ld", &pages) != 1)
        die("/proc/self/statm");
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* One end of a connection. */
struct end {
    struct rdma_cm_id *id;
    struct ibv_cq *cq;
    struct ibv_mr *mr;
    char bytes[BYTES];
};

static struct end *new_end(void)
{
    struct end *end = calloc(1, sizeof(*end));
    if (!end)
        die("memory");
    return end;
}

static void equip(struct end *end, struct rdma_cm_id *id)
{
    end->id = id;
    id->context = end;
    end->cq = ibv_create_cq(id->verbs, 8, NULL, NULL, 0);
    if (!end->cq)
        die("ibv_create_cq");
    struct ibv_qp_init_attr attr = {
        .send_cq = end->cq,
        .recv_cq = end->cq,
        .qp_type = IBV_QPT_RC,
        .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 },
    };
    if (rdma_create_qp(id, NULL, &attr))
        die("rdma_create_qp");
    end->mr = rdma_reg_msgs(id, end->bytes, BYTES);
    if (!end->mr)
        die("rdma_reg_msgs");
}

static void destroy(struct end *end)
{
    rdma_destroy_qp(end->id);
    if (end->mr && rdma_dereg_mr(end->mr))
        die("rdma_dereg_mr");
    if (end->cq && ibv_destroy_cq(end->cq))
        die("ibv_destroy_cq");
    if (rdma_destroy_id(end->id))
        die("rdma_destroy_id");
    free(end);
}

/* The next event, or none within the time. */
static struct rdma_cm_event *next_event(struct rdma_event_channel *channel, int ms)
{
    struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
    struct rdma_cm_event *event;
    double end = now() + ms / 1e3;
    for (;;) {
        int rest = (int)((end - now()) * 1e3);
        if (poll(&fd, 1, rest < 0 ? 0 : rest) != 1)
            return NULL;
        if (rdma_get_cm_event(channel, &event))
            die("rdma_get_cm_event");
        if (event->event != RDMA_CM_EVENT_TIMEWAIT_EXIT)
            return event;
        rdma_ack_cm_event(event);
    }
}

/* Waits for one event, and no other; its status comes back. */
static int expect(struct rdma_event_channel *channel, enum rdma_cm_event_type kind, int ms)
{
    struct rdma_cm_event *event = next_event(channel, ms);
    if (!event)
        die("no %s within %d ms", rdma_event_str(kind), ms);
    if (event->event != kind)
        die("%s with status %d instead of %s", rdma_event_str(event->event), event->status,
            rdma_event_str(kind));
    int status = event->status;
    rdma_ack_cm_event(event);
    return status;
}

static struct rdma_event_channel *new_channel(void)
{
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (!channel)
        die("rdma_create_event_channel");
    return channel;
}

/* Begins a connection, from a port of its own if there is one. */
static struct end *begin(struct rdma_event_channel *channel, int source_port)
{
    struct end *end = new_end();
    struct rdma_cm_id *id;
    struct sockaddr_in source = address;
    struct rdma_conn_param param = { .retry_count = 7, .rnr_retry_count = 7 };
    source.sin_port = htons(source_port);
    if (rdma_create_id(channel, &id, end, RDMA_PS_TCP))
        die("rdma_create_id");
    if (rdma_resolve_addr(id, source_port ? (struct sockaddr *)&source : NULL,
                          (struct sockaddr *)&address, 2000))
        die("rdma_resolve_addr");
    if (expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED, SOON_MS))
        die("the address is not resolved");
    if (rdma_resolve_route(id, 2000))
        die("rdma_resolve_route");
    if (expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED, SOON_MS))
        die("the route is not resolved");
    equip(end, id);
    if (rdma_connect(id, &param))
        die("rdma_connect");
    return end;
}

static struct ibv_wc await_completion(struct end *end, int ms)
{
    struct ibv_wc wc;
    double limit = now() + ms / 1e3;
    int count;
    while ((count = ibv_poll_cq(end->cq, 1, &wc)) == 0) {
        if (now() > limit)
            die("no completion within %d ms", ms);
        usleep(50);
    }
    if (count < 0)
        die("ibv_poll_cq");
    return wc;
}

static void send_number(struct end *end, int number)
{
    memset(end->bytes, number & 0xff, BYTES);
    if (rdma_post_send(end->id, NULL, end->bytes, BYTES, end->mr, IBV_SEND_SIGNALED))
        die("rdma_post_send");
    struct ibv_wc wc = await_completion(end, SOON_MS);
    if (wc.status)
        die("the send ended with %s", ibv_wc_status_str(wc.status));
}

static struct rdma_cm_id *listener(struct rdma_event_channel *channel, int backlog)
{
    struct rdma_cm_id *id;
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP))
        die("rdma_create_id");
    if (rdma_bind_addr(id, (struct sockaddr *)&address))
        die("rdma_bind_addr");
    if (rdma_listen(id, backlog))
        die("rdma_listen");
    return id;
}

/* Accepts everything, and checks what comes; tells by a pipe that it listens. */
static void serve(int ready, int connections, int backlog)
{
    struct rdma_event_channel *channel = new_channel();
    struct rdma_cm_id *listen = listener(channel, backlog);
    struct rdma_conn_param param = { .rnr_retry_count = 7 };
    int ended = 0, before = 0;
    long memory = 0;
    if (write(ready, "r", 1) != 1)
        die("the pipe");
    while (ended < connections) {
        struct rdma_cm_event *event = next_event(channel, NO_ANSWER_MS);
        if (!event)
            die("the server waits, %d of %d connections have ended", ended, connections);
        struct rdma_cm_id *id = event->id;
        enum rdma_cm_event_type kind = event->event;
        int status = event->status;
        rdma_ack_cm_event(event);
        if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
            struct end *end = new_end();
            equip(end, id);
            if (rdma_post_recv(id, NULL, end->bytes, BYTES, end->mr))
                die("rdma_post_recv");
            if (rdma_accept(id, &param))
                die("rdma_accept");
        } else if (kind == RDMA_CM_EVENT_DISCONNECTED) {
            struct end *end = id->context;
            struct ibv_wc wc = await_completion(end, SOON_MS);
            if (wc.status || wc.byte_len != BYTES)
                die("what was sent did not arrive: %s", ibv_wc_status_str(wc.status));
            for (int i = 1; i < BYTES; i++)
                if (end->bytes[i] != end->bytes[0])
                    die("other bytes than were sent");
            destroy(end);
            ended++;
            if (ended == connections / 2) {
                before = descriptors();
                memory = kilobytes();
            }
        } else if (kind != RDMA_CM_EVENT_ESTABLISHED) {
            die("%s with status %d at the server", rdma_event_str(kind), status);
        }
    }
    if (before && descriptors() > before)
        die("the server leaks descriptors: %d, then %d", before, descriptors());
    if (memory && kilobytes() > memory + 16 * 1024)
        die("the server leaks memory: %ld KiB, then %ld", memory, kilobytes());
    rdma_destroy_id(listen);
    rdma_destroy_event_channel(channel);
}

/* Starts a server, and waits until it listens. */
static pid_t start_server(int connections, int backlog)
{
    int ends[2];
    char byte;
    if (pipe(ends))
        die("pipe");
    pid_t child = fork();
    if (child < 0)
        die("fork");
    if (child == 0) {
        close(ends[0]);
        serve(ends[1], connections, backlog);
        exit(0);
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1)
        die("the server did not start");
    close(ends[0]);
    return child;
}

static void join(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || status)
        die("the server ended with %#x", status);
}

static void reconnect(int times)
{
    pid_t server = start_server(times, 0);
    struct rdma_event_channel *channel = new_channel();
    int source_port = ntohs(address.sin_port) + 10000, before = 0;
    long memory = 0;
    for (int i = 0; i < times; i++) {
        struct end *end = begin(channel, source_port);
        if (expect(channel, RDMA_CM_EVENT_ESTABLISHED, SOON_MS))
            die("connection %d is not established", i);
        send_number(end, i);
        if (rdma_disconnect(end->id))
            die("rdma_disconnect");
        expect(channel, RDMA_CM_EVENT_DISCONNECTED, SOON_MS);
        destroy(end);
        if (i == times / 2) {
            before = descriptors();
            memory = kilobytes();
        }
    }
    if (descriptors() > before)
        die("descriptors leak: %d, then %d", before, descriptors());
    if (kilobytes() > memory + 16 * 1024)
        die("memory leaks: %ld KiB, then %ld", memory, kilobytes());
    join(server);
}

static void many(int count)
{
    pid_t server = start_server(count, 0);
    struct rdma_event_channel *resolve = new_channel(), *channel = new_channel();
    struct end **ends = calloc(count, sizeof(*ends));
    for (int i = 0; i < count; i++) {
        ends[i] = begin(resolve, 0);
        if (rdma_migrate_id(ends[i]->id, channel))
            die("rdma_migrate_id");
    }
    for (int i = 0; i < count; i++)
        if (expect(channel, RDMA_CM_EVENT_ESTABLISHED, NO_ANSWER_MS))
            die("%d of %d are established", i, count);
    for (int i = 0; i < count; i++)
        send_number(ends[i], i);
    for (int i = 0; i < count; i++)
        if (rdma_disconnect(ends[i]->id))
            die("rdma_disconnect");
    for (int i = 0; i < count; i++)
        expect(channel, RDMA_CM_EVENT_DISCONNECTED, SOON_MS);
    for (int i = 0; i < count; i++)
        destroy(ends[i]);
    free(ends);
    join(server);
}

static void refused(void)
{
    struct rdma_event_channel *channel = new_channel();
    for (int round = 0; round < 2; round++) {
        struct end *end = begin(channel, 0);
        int reason = expect(channel, RDMA_CM_EVENT_REJECTED, SOON_MS);
        if (reason != 8)
            die("rejected with reason %d, not 8 (invalid service id)", reason);
        destroy(end);
        /* In the second round there was a listener, and it is gone. */
        rdma_destroy_id(listener(channel, 0));
    }
}

static void backlog(void)
{
    struct rdma_event_channel *channel = new_channel(), *passive = new_channel();
    struct rdma_cm_id *listen = listener(passive, 4);
    struct end *ends[16];
    int refused = 0;
    for (int i = 0; i < 16; i++) {
        struct rdma_event_channel *resolve = new_channel();
        ends[i] = begin(resolve, 0);
        if (rdma_migrate_id(ends[i]->id, channel))
            die("rdma_migrate_id");
        rdma_destroy_event_channel(resolve);
    }
    while (refused < 12) {
        if (!expect(channel, RDMA_CM_EVENT_REJECTED, SOON_MS))
            die("rejected without a reason");
        refused++;
    }
    if (next_event(channel, 200))
        die("more than 12 of 16 requests were refused by a backlog of 4");
    rdma_destroy_id(listen);
    /* The four that waited are told as well. */
    for (int i = 0; i < 4; i++)
        expect(channel, RDMA_CM_EVENT_REJECTED, SOON_MS);
    for (int i = 0; i < 16; i++)
        destroy(ends[i]);
}

static void killed(void)
{
    pid_t server = start_server(1, 0);
    struct rdma_event_channel *channel = new_channel();
    struct end *end = begin(channel, 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED, SOON_MS);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    if (rdma_post_send(end->id, NULL, end->bytes, BYTES, end->mr, IBV_SEND_SIGNALED))
        die("rdma_post_send");
    struct ibv_wc wc = await_completion(end, SOON_MS);
    if (!wc.status)
        die("a send to a dead peer succeeded");
    if (rdma_disconnect(end->id))
        die("rdma_disconnect");
    expect(channel, RDMA_CM_EVENT_DISCONNECTED, NO_ANSWER_MS);
    destroy(end);
    /* Nobody listens now, and that is said at once. */
    end = begin(channel, 0);
    expect(channel, RDMA_CM_EVENT_REJECTED, SOON_MS);
    destroy(end);
}

static void silent(void)
{
    pid_t server = start_server(1, 0);
    struct rdma_event_channel *channel = new_channel();
    kill(server, SIGSTOP);
    struct end *end = begin(channel, 0);
    int status = expect(channel, RDMA_CM_EVENT_UNREACHABLE, NO_ANSWER_MS);
    if (status != -ETIMEDOUT)
        die("the status is %d, not -ETIMEDOUT", status);
    destroy(end);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

static void cut(void)
{
    pid_t server = start_server(1, 0);
    struct rdma_event_channel *channel = new_channel();
    struct end *end = begin(channel, 0);
    expect(channel, RDMA_CM_EVENT_ESTABLISHED, SOON_MS);
    expect(channel, RDMA_CM_EVENT_ADDR_CHANGE, SOON_MS);
    if (rdma_post_send(end->id, NULL, end->bytes, BYTES, end->mr, IBV_SEND_SIGNALED))
        die("rdma_post_send");
    await_completion(end, SOON_MS);
    if (rdma_disconnect(end->id))
        die("rdma_disconnect");
    expect(channel, RDMA_CM_EVENT_DISCONNECTED, NO_ANSWER_MS);
    destroy(end);
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        die("usage: connections ADDRESS PORT MODE [N]");
    address.sin_family = AF_INET;
    address.sin_port = htons(atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
        die("%s is no IPv4 address", argv[1]);
    const char *mode = argv[3];
    int number = argc > 4 ? atoi(argv[4]) : 10;
    double start = now();
    if (!strcmp(mode, "reconnect"))
        reconnect(number);
    else if (!strcmp(mode, "many"))
        many(number);
    else if (!strcmp(mode, "refused"))
        refused();
    else if (!strcmp(mode, "backlog"))
        backlog();
    else if (!strcmp(mode, "killed"))
        killed();
    else if (!strcmp(mode, "silent"))
        silent();
    else if (!strcmp(mode, "cut"))
        cut();
    else
        die("no mode %s", mode);
    printf("%s: %.2f s\n", mode, now() - start);
    return 0;
}
