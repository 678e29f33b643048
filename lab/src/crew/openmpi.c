/* All ranks of Open MPI: rank 0 is told what to do by the lines of `gradwire perf` on standard
 * input and answers for all; of each all-reduce it tells the time of the slowest rank. Between
 * rounds every rank sleeps, so that it takes no time from what is measured in turn with it. */

#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { ORDER_TAG = 7, VALUES = 251, RANK_STRIDE = 13, ELEMENT_STRIDE = 7, LINE = 1 << 20 };

struct order {
    unsigned long long bytes;
    unsigned iterations; /* 0: the end */
};

static float value(int rank, size_t element) {
    return (float)((element * ELEMENT_STRIDE + (size_t)rank * RANK_STRIDE) % VALUES);
}

static int measure(const struct order *order, double *times, int rank, int world) {
    size_t count = order->bytes / sizeof(float);
    float *source = malloc(count * sizeof(float) + 1), *sum = malloc(count * sizeof(float) + 1);
    int wrong = 0;
    for (size_t i = 0; i < count; i++) source[i] = value(rank, i);
    for (unsigned turn = 0; turn < order->iterations; turn++) {
        memcpy(sum, source, count * sizeof(float));
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, sum, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[turn] = (MPI_Wtime() - start) * 1e6;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    for (size_t i = 0; i < count; i++) {
        float exact = 0;
        for (int other = 0; other < world; other++) exact += value(other, i);
        wrong += sum[i] != exact;
    }
    free(source);
    free(sum);
    return wrong;
}

/* The next order: of rank 0 from the launcher, of the others from rank 0. */
static struct order next_order(int rank, int world, char *line) {
    struct order order = {0, 0};
    int there = 0;
    if (rank != 0) {
        while (!there) {
            usleep(500);
            MPI_Iprobe(0, ORDER_TAG, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
        }
        MPI_Recv(&order, sizeof order, MPI_BYTE, 0, ORDER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return order;
    }
    for (;;) {
        if (!fgets(line, LINE, stdin)) MPI_Abort(MPI_COMM_WORLD, 4);
        if (strstr(line, "\"Open\"")) {
            puts("{\"Opened\":{\"rendezvous\":\"mpirun\"}}");
        } else if (strstr(line, "\"Join\"")) {
            puts("{\"Joined\":{\"wire\":\"shm\"}}");
        } else {
            break;
        }
        fflush(stdout);
    }
    const char *bytes = strstr(line, "\"bytes\":"), *count = strstr(line, "\"iterations\":");
    if (bytes && count) {
        order.bytes = strtoull(bytes + strlen("\"bytes\":"), NULL, 10);
        order.iterations = (unsigned)strtoul(count + strlen("\"iterations\":"), NULL, 10);
    }
    for (int other = 1; other < world; other++)
        MPI_Send(&order, sizeof order, MPI_BYTE, other, ORDER_TAG, MPI_COMM_WORLD);
    return order;
}

int main(int argc, char **argv) {
    int rank, world, wrong, wrong_anywhere;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    char *line = malloc(LINE);
    for (;;) {
        struct order order = next_order(rank, world, line);
        if (order.iterations == 0) break;
        double *times = calloc(order.iterations, sizeof *times);
        double *slowest = calloc(order.iterations, sizeof *slowest);
        wrong = measure(&order, times, rank, world);
        int count = (int)order.iterations;
        MPI_Reduce(times, slowest, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&wrong, &wrong_anywhere, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("{\"Measured\":{\"wrong_elements\":%d,\"times_us\":[", wrong_anywhere);
            for (int turn = 0; turn < count; turn++)
                printf("%s%.3f", turn ? "," : "", slowest[turn]);
            puts("]}}");
            fflush(stdout);
        }
        free(times);
        free(slowest);
    }
    free(line);
    MPI_Finalize();
    return 0;
}
