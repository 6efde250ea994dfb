/*
 * MPI collectives whose results are known: every rank contributes numbers that follow from its
 * rank, so that each rank can say what it must get. Sizes go from one element to a megabyte, which
 * takes eager and rendezvous ways through the transport.
 *
 * Prints "collectives ok: N ranks, B bytes received" on rank 0, or what differed, and exits 1.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ELEMENTS_MAX = 1 << 17, ROUNDS = 3 };

static int rank, ranks;
static uint64_t received;

static void wrong(const char *what, int count, int index, uint64_t got, uint64_t expected)
{
    fprintf(stderr, "%s of %d: rank %d, element %d: %llu instead of %llu\n", what, count, rank,
        index, (unsigned long long)got, (unsigned long long)expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t value(int from, int to, int index, int round)
{
    return (uint64_t)from * 1000003 + (uint64_t)to * 8191 + (uint64_t)index * 3 +
           (uint64_t)round;
}

static void all_reduce(uint64_t *in, uint64_t *out, int count, int round)
{
    for (int i = 0; i < count; i++)
        in[i] = value(rank, 0, i, round);
    MPI_Allreduce(in, out, count, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        uint64_t sum = 0;
        for (int from = 0; from < ranks; from++)
            sum += value(from, 0, i, round);
        if (out[i] != sum)
            wrong("all-reduce", count, i, out[i], sum);
    }
    received += (uint64_t)count * sizeof(*out);
}

static void all_to_all(uint64_t *in, uint64_t *out, int count, int round)
{
    for (int to = 0; to < ranks; to++)
        for (int i = 0; i < count; i++)
            in[to * count + i] = value(rank, to, i, round);
    MPI_Alltoall(in, count, MPI_UINT64_T, out, count, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++)
        for (int i = 0; i < count; i++) {
            uint64_t expected = value(from, rank, i, round);
            if (out[from * count + i] != expected)
                wrong("all-to-all", count, i, out[from * count + i], expected);
        }
    received += (uint64_t)count * (uint64_t)ranks * sizeof(*out);
}

int main(int argc, char **argv)
{
    static const int counts[] = { 1, 7, 128, 1000, 8192, ELEMENTS_MAX };

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    uint64_t *in = malloc(sizeof(*in) * ELEMENTS_MAX);
    uint64_t *out = malloc(sizeof(*out) * ELEMENTS_MAX);
    if (!in || !out)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            all_reduce(in, out, counts[i], round);
            int each = counts[i] / ranks;
            all_to_all(in, out, each > 0 ? each : 1, round);
        }
    free(in);
    free(out);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("collectives ok: %d ranks, %llu bytes received\n", ranks,
               (unsigned long long)received);
    MPI_Finalize();
    return 0;
}
