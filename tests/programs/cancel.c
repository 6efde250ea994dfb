/*
 * A thread that waits in ibv_get_cq_event is cancelled: it must end, and what it waited on must
 * still work.
 *
 *     cancel DEVICE
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_S 20

static void *wait_for_event(void *channel)
{
    struct ibv_cq *cq;
    void *context;

    ibv_get_cq_event(channel, &cq, &context);
    return NULL;
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return 1;
}

int main(int argc, char **argv)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = NULL;
    struct timespec until;
    pthread_t thread;
    void *result;

    if (argc != 2 || !list)
        return fail("usage: cancel DEVICE");
    for (int i = 0; list[i]; i++)
        if (!strcmp(ibv_get_device_name(list[i]), argv[1]))
            context = ibv_open_device(list[i]);
    ibv_free_device_list(list);
    if (!context)
        return fail("ibv_open_device");
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, channel, 0);
    if (!channel || !cq || ibv_req_notify_cq(cq, 0))
        return fail("a completion queue with a channel");

    for (int round = 0; round < 2; round++) {
        if (pthread_create(&thread, NULL, wait_for_event, channel))
            return fail("pthread_create");
        /* It waits, the first time; the second time it may not have begun. */
        usleep(round == 0 ? 300000 : 0);
        if (pthread_cancel(thread))
            return fail("pthread_cancel");
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE_S;
        errno = pthread_timedjoin_np(thread, &result, &until);
        if (errno)
            return fail("the thread does not end");
        if (result != PTHREAD_CANCELED)
            return fail("the thread was not cancelled");
    }
    if (ibv_destroy_cq(cq) || ibv_destroy_comp_channel(channel) || ibv_close_device(context))
        return fail("what it waited on cannot be destroyed");
    puts("cancelled");
    return 0;
}
