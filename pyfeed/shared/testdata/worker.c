/* A worker process for tests. Its ring is descriptor 3. It reads commands from standard input, one a line,
 * and prints one line as the result of each. The first argument names a step at which the worker stops:
 * there it prints "stopped", and continues after the next line of input. The second argument is the number
 * of times to pass that step before stopping. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pyfeed_worker.h"
#include "ring.h"

static const char *stop_at;
static int before;

void pfw_step(const char *name);
void pfw_step(const char *name) {
    if (!stop_at || strcmp(name, stop_at) != 0 || before-- > 0) return;
    printf("stopped\n");
    fflush(stdout);
    stop_at = NULL;
    char line[256];
    while (!fgets(line, sizeof line, stdin)) pause();
}

static void say(pf_status status, const pfw_error *err) {
    if (status)
        printf("%d %s\n", status, err->message);
    else
        printf("0\n");
    fflush(stdout);
}

static uint32_t sum_of(const uint8_t *data, size_t n) {
    uint32_t sum = 0;
    for (size_t i = 0; i < n; i++) sum = sum * 31 + data[i];
    return sum;
}

/* Pushes a tuple of an int64 scalar (number), uint8 [-1] (bytes of data) and a uint32 scalar (checksum). */
static pf_status push(pfw_producer *p, int64_t number, size_t bytes, const pf_wait *wait, pfw_error *err) {
    uint8_t *data = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)((size_t)number * 7 + i);
    uint32_t sum = sum_of(data, bytes);
    int64_t dim = (int64_t)bytes;
    pf_tensor t[3] = {PF_TENSOR_INIT, PF_TENSOR_INIT, PF_TENSOR_INIT};
    t[0].dtype = PF_INT64;
    t[0].data = &number;
    t[1].dtype = PF_UINT8;
    t[1].rank = 1;
    t[1].dims = &dim;
    t[1].data = data;
    t[2].dtype = PF_UINT32;
    t[2].data = &sum;
    pf_status status = pfw_push(p, t, 3, wait, err);
    free(data);
    return status;
}

static pfw_taken taken;

/* Takes a task of one uint8 [-1], and prints its ticket, its position and the checksum of its data. */
static pf_status take(pfw_producer *p, const pf_wait *wait, pfw_error *err) {
    pf_tensor t[1];
    int64_t dims[1][PF_MAX_RANK];
    pf_lod_level lod[1][PF_MAX_LOD_LEVELS];
    pf_status status = pfw_take(p, wait, &taken, t, dims, lod, err);
    if (status == PF_OK)
        printf("%llu %llu %llu %u\n", (unsigned long long)taken.ticket, (unsigned long long)taken.pass,
               (unsigned long long)taken.index, sum_of(t[0].data, (size_t)t[0].nbytes));
    return status;
}

int main(int argc, char **argv) {
    char line[256], word[64];
    pfw_error err;
    pfw_producer *p = NULL;
    pfw_reservation reservation = {0, 0};
    if (argc > 1) stop_at = argv[1];
    if (argc > 2) before = atoi(argv[2]);
    while (fgets(line, sizeof line, stdin)) {
        long long a = 0, b = 0, c = 0;
        int words = sscanf(line, "%63s %lld %lld %lld", word, &a, &b, &c);
        if (words < 1) continue;
        err.message[0] = 0;
        if (!strcmp(word, "open"))
            say(pfw_open(3, &p, &err), &err);
        else if (!strcmp(word, "attach"))
            say(pfw_attach(p, words > 1 ? (uint64_t)a : PF_PASS_CURRENT, &err), &err);
        else if (!strcmp(word, "number")) {
            pfw_set_number(p, (uint32_t)a);
            say(PF_OK, &err);
        } else if (!strcmp(word, "push"))
            say(push(p, a, (size_t)b, NULL, &err), &err);
        else if (!strcmp(word, "try")) {
            pf_wait now = PF_WAIT_INIT;
            now.timeout_ns = a * 1000000;
            say(push(p, 0, 1, &now, &err), &err);
        } else if (!strcmp(word, "many")) { /* numbers a to b-1, of fewer than c bytes each */
            pf_status status = PF_OK;
            for (; a < b && status == PF_OK; a++)
                status = push(p, a, c ? (size_t)(a * 7919 % c) : 0, NULL, &err);
            say(status, &err);
        } else if (!strcmp(word, "reserve")) {
            pf_tensor t[3] = {PF_TENSOR_INIT, PF_TENSOR_INIT, PF_TENSOR_INIT};
            void *data[3];
            int64_t dim = a;
            t[0].dtype = PF_INT64;
            t[1].dtype = PF_UINT8;
            t[1].rank = 1;
            t[1].dims = &dim;
            t[2].dtype = PF_UINT32;
            pf_status status = pfw_reserve(p, t, 3, NULL, &reservation, data, &err);
            if (status == PF_OK) {
                *(int64_t *)data[0] = 0;
                memset(data[1], 0, (size_t)a);
                *(uint32_t *)data[2] = 0;
            }
            say(status, &err);
        } else if (!strcmp(word, "take")) {
            if (take(p, NULL, &err) == PF_OK)
                fflush(stdout);
            else
                say(err.status, &err);
        } else if (!strcmp(word, "release")) {
            pfw_release_task(p, &taken);
            say(PF_OK, &err);
        } else if (!strcmp(word, "fail_task"))
            say(pfw_fail_task(p, &taken, "ValueError", "bad", "line 1", "pickle", 6, &err), &err);
        else if (!strcmp(word, "commit"))
            say(pfw_commit(p, &reservation, &err), &err);
        else if (!strcmp(word, "abandon")) {
            pfw_abandon(p, &reservation);
            say(PF_OK, &err);
        } else if (!strcmp(word, "end"))
            say(pfw_end(p, &err), &err);
        else if (!strcmp(word, "fail"))
            say(pfw_fail(p, "ValueError", "no such file", "line 1\nline 2", &err), &err);
        else if (!strcmp(word, "exit"))
            _exit((int)a);
        else if (!strcmp(word,
                         "smash")) { /* as a broken worker might: sets byte a of cell 0's descriptors to b */
            pfw_header *h = *(pfw_header **)p;
            ((uint8_t *)h + h->tensors_at)[a] = (uint8_t)b;
            say(PF_OK, &err);
        } else if (!strcmp(word, "layout")) {
            printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(pfw_header),
                   sizeof(pfw_spec), sizeof(pfw_tensor), sizeof(pfw_worker), offsetof(pfw_header, specs_at),
                   offsetof(pfw_header, trainer), offsetof(pfw_header, gate), offsetof(pfw_header, tail),
                   offsetof(pfw_header, trainer_events), offsetof(pfw_header, cell_events),
                   offsetof(pfw_tensor, lod_at), sizeof(pfw_task), offsetof(pfw_header, tasks),
                   offsetof(pfw_header, task_events));
            fflush(stdout);
        }
    }
    pfw_free(p);
    return 0;
}
