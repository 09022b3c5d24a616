/* A program as it was built against the header of an earlier release: -DPYFEED_HEADER='"pyfeed-0.1.h"' names the copy.
 *
 *     caller FOLDER
 *
 * It runs against the library of today, and against one whose structs have grown (appended.sh). Every struct that it passes
 * is its own allocation of the size that the struct had, so that AddressSanitizer, or the bytes behind it, tell of a library
 * that touches more. Arrays that it gets are stepped through by the size of their first element. */
#define _POSIX_C_SOURCE 200809L
#include PYFEED_HEADER

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__SANITIZE_ADDRESS__)
enum { CANARY = 0 };
#else
enum { CANARY = 64 };
#endif

static int failures;

static void expect(int condition, const char *what, int line) {
    if (condition) return;
    fprintf(stderr, "caller.c:%d: expected %s\n", line, what);
    failures++;
}
#define EXPECT(condition) expect((condition) != 0, #condition, __LINE__)

/* ---- Structs of their size, and nothing behind them ---- */

static struct allocation {
    unsigned char *data;
    size_t size;
    const char *type;
} allocations[256];
static int num_allocations;

static void *allocate(size_t size, size_t count, const void *init, const char *type) {
    unsigned char *data = malloc(size * count + CANARY);
    for (size_t i = 0; i < count; i++) memcpy(data + i * size, init, size);
    memset(data + size * count, 0x5a, CANARY);
    if (num_allocations == sizeof allocations / sizeof *allocations) abort();
    allocations[num_allocations++] = (struct allocation){data, size * count, type};
    return data;
}
#define NEW(type, count, init) ((type *)allocate(sizeof(type), (count), &(const type)init, #type))

static void check_allocations(void) {
    for (int i = 0; i < num_allocations; i++) {
        const struct allocation *a = &allocations[i];
        for (int j = 0; j < CANARY; j++)
            if (a->data[a->size + j] != 0x5a) {
                fprintf(stderr, "byte %d behind a %s was written\n", j, a->type);
                failures++;
                break;
            }
        free(a->data);
    }
}

static const pf_tensor *tensor_at(const pf_tensor *first, uint32_t i) {
    return (const pf_tensor *)((const char *)first + (size_t)i * first->size);
}

static pf_error *err;

static void expect_status(pf_status expected, pf_status found, const char *call, int line) {
    if (expected == found) return;
    fprintf(stderr, "caller.c:%d: %s: expected %s, found %s: %s\n", line, call, pf_status_name(expected),
            pf_status_name(found), err->message ? err->message : "");
    failures++;
}
#define STATUS(expected, call) expect_status(expected, call, #call, __LINE__)
#define OK(call) STATUS(PF_OK, call)

/* ---- What is pushed: a number, and as many floats in rows of two ---- */

static int64_t numbers[3];
static float floats[6];
static const int64_t scalar_dims[1] = {1}, number_dims[1] = {-1}, row_dims[2] = {-1, 2},
                     rows_dims[2] = {3, 2};

static pf_tensor *tuple_of(int64_t n) {
    pf_tensor *t = NEW(pf_tensor, 2, PF_TENSOR_INIT);
    for (int i = 0; i < 3; i++) numbers[i] = n + i;
    for (int i = 0; i < 6; i++) floats[i] = (float)(2 * n + i);
    static const int64_t three[1] = {3};
    t[0].dtype = PF_INT64;
    t[0].rank = 1;
    t[0].dims = three;
    t[0].data = numbers;
    t[1].dtype = PF_FLOAT32;
    t[1].rank = 2;
    t[1].dims = rows_dims;
    t[1].data = floats;
    return t;
}

static void expect_tuple(const pf_tuple *tuple, int64_t n, int line) {
    expect(tuple->num_slots == 2, "two slots", line);
    if (tuple->num_slots != 2) return;
    const pf_tensor *a = tensor_at(tuple->slots, 0), *b = tensor_at(tuple->slots, 1);
    expect(a->dtype == PF_INT64 && a->rank == 1 && a->dims[0] == 3 && a->nbytes == 24, "three numbers", line);
    expect(b->dtype == PF_FLOAT32 && b->rank == 2 && b->dims[0] == 3 && b->dims[1] == 2, "rows", line);
    expect(((const int64_t *)a->data)[2] == n + 2, "the last number", line);
    expect(((const float *)b->data)[5] == (float)(2 * n + 5), "the last float", line);
}

static pf_slot_spec *slots(void) {
    pf_slot_spec *s = NEW(pf_slot_spec, 2, PF_SLOT_SPEC_INIT);
    s[0].dtype = PF_INT64;
    s[0].rank = 1;
    s[0].dims = number_dims;
    s[1].dtype = PF_FLOAT32;
    s[1].rank = 2;
    s[1].dims = row_dims;
    return s;
}

static void count_call(void *count) { ++*(int *)count; }
static int cancel_at_once(void *count) {
    count_call(count);
    return 1;
}

/* ---- The parts ---- */

static void queues(pf_handle scope) {
    pf_handle var, queue, again, producer, token;
    OK(pf_scope_var(scope, "queue", &var, err));
    pf_queue_options *options = NEW(pf_queue_options, 1, PF_QUEUE_OPTIONS_INIT);
    options->num_slots = 2;
    options->slots = slots();
    options->capacity = 3;
    OK(pf_queue_init_once(var, options, &queue, err));
    STATUS(PF_STATE, pf_queue_init_once(var, options, &again, err));
    OK(pf_var_get_queue(var, &again, err));
    OK(pf_release(again, err));
    int32_t kind = -1;
    OK(pf_var_kind(var, &kind, err));
    EXPECT(kind == PF_VAR_QUEUE);
    OK(pf_producer_create(queue, &producer, err));

    pf_wait *wait = NEW(pf_wait, 1, PF_WAIT_INIT);
    pf_tuple *tuple = NEW(pf_tuple, 1, PF_TUPLE_INIT), *shared = NEW(pf_tuple, 1, PF_TUPLE_INIT);
    int released = 0, polls = 0;
    uint64_t pass = 0;
    pf_queue_info *info = NEW(pf_queue_info, 1, PF_QUEUE_INFO_INIT);
    OK(pf_queue_stats(queue, info, err));
    pass = info->pass;
    OK(pf_queue_push(producer, tuple_of(1), 2, pass, NULL, err));
    OK(pf_queue_pop(queue, wait, tuple, err));
    expect_tuple(tuple, 1, __LINE__);
    OK(pf_queue_push_lent(producer, tuple_of(2), 2, pass, count_call, &released, wait, err));
    OK(pf_queue_pop(queue, wait, tuple, err)); /* which releases the tuple before */
    expect_tuple(tuple, 2, __LINE__);
    pf_tuple_release(tuple);
    EXPECT(released == 1 && tuple->loan == 0 && tuple->num_slots == 0);
    OK(pf_queue_reserve(producer, tuple_of(3), 2, pass, wait, tuple, err));
    memcpy(tensor_at(tuple->slots, 0)->data, numbers, sizeof numbers);
    memcpy(tensor_at(tuple->slots, 1)->data, floats, sizeof floats);
    OK(pf_queue_commit(tuple, err));
    EXPECT(tuple->loan == 0);

    OK(pf_queue_stats(queue, info, err));
    EXPECT(info->size == sizeof *info && info->num_slots == 2 && info->num_tuples == 1 &&
           info->capacity == 3);
    EXPECT(info->pushed == 3 && info->popped == 2 && info->pass == pass && !info->closed);
    pf_slot_spec *spec = NEW(pf_slot_spec, 1, PF_SLOT_SPEC_INIT);
    int64_t dims[PF_MAX_RANK];
    OK(pf_queue_slot(queue, 1, spec, dims, err));
    EXPECT(spec->dtype == PF_FLOAT32 && spec->rank == 2 && spec->dims[0] == -1 && spec->dims[1] == 2);

    OK(pf_queue_pop(queue, NULL, tuple, err));
    expect_tuple(tuple, 3, __LINE__);
    OK(pf_tuple_share(tuple, shared, err));
    OK(pf_tuple_use(tuple, 1, err));
    OK(pf_tuple_synchronize(tuple, NULL, err));
    int64_t copied[3] = {0};
    OK(pf_tuple_download(tuple, 0, copied, sizeof copied, err));
    EXPECT(copied[2] == 5);
    OK(pf_tuple_release_on(tuple, 1, err));
    EXPECT(tuple->loan == 0 && tuple->size == sizeof *tuple);
    expect_tuple(shared, 3, __LINE__);
    pf_tuple_release(shared);

    wait->timeout_ns = 0;
    STATUS(PF_TIMEOUT, pf_queue_pop(queue, wait, tuple, err));
    wait->timeout_ns = -1;
    wait->poll_interval_ms = 1;
    wait->poll = cancel_at_once;
    wait->poll_context = &polls;
    STATUS(PF_CANCELLED, pf_queue_pop(queue, wait, tuple, err));
    EXPECT(polls > 0);
    wait->poll = NULL;
    OK(pf_cancel_token_create(&token, err));
    OK(pf_cancel_token_cancel(token, err));
    wait->cancel = token;
    STATUS(PF_CANCELLED, pf_queue_pop(queue, wait, tuple, err));
    OK(pf_poll_now(err));

    pf_tensor *wrong = tuple_of(4);
    wrong[1].rank = 1;
    STATUS(PF_SHAPE, pf_queue_push(producer, wrong, 2, pass, NULL, err));
    EXPECT(err->size == sizeof *err && err->status == PF_SHAPE && err->slot == 1 && err->message);
    pf_error_release(err);
    EXPECT(err->status == PF_OK && !err->message && err->slot == -1 && err->size == sizeof *err);

    pf_failure *failure = NEW(pf_failure, 1, PF_FAILURE_INIT);
    failure->type = "Type";
    failure->message = "a message";
    failure->token = 7;
    OK(pf_queue_fail(queue, pass, failure, err));
    STATUS(PF_FAILED, pf_queue_pop(queue, NULL, tuple, err));
    EXPECT(err->cause_type && strcmp(err->cause_type, "Type") == 0 && err->cause_token == 7 &&
           err->worker == 0);
    uint64_t next_pass = 0, dropped = 77, waited = 0;
    OK(pf_queue_reopen(queue, &next_pass, &dropped, err));
    EXPECT(next_pass == pass + 1 && dropped == 0);
    OK(pf_queue_wait_pass(queue, pass, NULL, &waited, err));
    EXPECT(waited == next_pass);
    OK(pf_queue_close(queue, next_pass, err));
    STATUS(PF_END, pf_queue_pop(queue, NULL, tuple, err));
    OK(pf_queue_shutdown(queue, err));
    STATUS(PF_CLOSED, pf_queue_push(queue, tuple_of(1), 2, next_pass, NULL, err));
    OK(pf_retain(queue, err));
    OK(pf_release(queue, err));
    OK(pf_release(queue, err));
    OK(pf_release(producer, err));
    OK(pf_release(token, err));
    OK(pf_release(var, err));
}

static void shared_queue(pf_handle scope) {
    pf_handle var, queue;
    int fd = -1;
    OK(pf_scope_var(scope, "shared", &var, err));
    pf_shared_queue_options *options = NEW(pf_shared_queue_options, 1, PF_SHARED_QUEUE_OPTIONS_INIT);
    options->num_slots = 2;
    options->slots = slots();
    options->ring_cells = 2;
    options->cell_bytes = 4096;
    OK(pf_shared_queue_init_once(var, options, &fd, &queue, err));
    EXPECT(fd >= 0);
    OK(pf_shared_queue_expect(queue, 1, err));
    STATUS(PF_INVALID, pf_shared_queue_report_exit(queue, 0, 0, err));
    int64_t coming = 1;
    uint8_t at_work = 0;
    OK(pf_shared_queue_at_work(queue, &coming, 1, &at_work, err));
    EXPECT(at_work == 1);
    OK(pf_queue_shutdown(queue, err));
    OK(pf_release(queue, err));
    OK(pf_release(var, err));
    OK(pf_scope_erase(scope, "shared", err));
}

static int complete(void *context, pf_handle workers, uint64_t ticket, const pf_tuple *in) {
    (void)context;
    if (in->size < sizeof *in || in->num_slots != 1) return 1;
    return pf_map_workers_complete(workers, ticket, in->slots, in->num_slots, NULL);
}

static void readers(pf_handle scope, const char *folder) {
    pf_handle var, reader, workers;
    const char *numbers_name[] = {"numbers"}, *mapped_name[] = {"mapped"};
    pf_tuple *tuple = NEW(pf_tuple, 1, PF_TUPLE_INIT);
    OK(pf_reader_create(scope, "create_random_data_generator", "numbers", NULL, 0,
                        "{\"slots\": [{\"dtype\": \"int64\", \"dims\": [2]}], \"high\": 9, \"count\": 4}",
                        NULL, err));
    OK(pf_reader_create(scope, "create_map_reader", "mapped", numbers_name, 1, NULL, NULL, err));
    OK(pf_scope_find(scope, "mapped", &var, err));
    OK(pf_var_get_reader(var, &reader, err));
    OK(pf_map_workers_create(reader, &workers, err));
    OK(pf_map_workers_start(workers, complete, NULL, 1, NULL, err));
    OK(pf_release(workers, err));
    OK(pf_release(reader, err));
    OK(pf_release(var, err));
    STATUS(PF_INVALID, pf_reader_create(scope, "create_batch_reader", "batch", mapped_name, 1,
                                        "{\"batch\": 2}", NULL, err));
    OK(pf_reader_create(scope, "create_batch_reader", "batch", mapped_name, 1, "{\"batch_size\": 2}", NULL,
                        err));
    OK(pf_scope_find(scope, "batch", &var, err));
    OK(pf_var_get_reader(var, &reader, err));
    for (int round = 0; round < 2; round++) {
        uint8_t has = 0;
        OK(pf_reader_has_next(reader, NULL, &has, err));
        EXPECT(has == 1);
        OK(pf_reader_next(reader, NULL, tuple, err));
        EXPECT(tuple->num_slots == 1 && tensor_at(tuple->slots, 0)->dims[0] == 2);
        OK(pf_reader_next(reader, NULL, tuple, err));
        STATUS(PF_END, pf_reader_next(reader, NULL, tuple, err));
        OK(pf_reader_reset(reader, err));
    }
    const char *outs[] = {"out"};
    OK(pf_scope_read(scope, "batch", outs, 1, NULL, err));
    char *json = NULL;
    OK(pf_reader_stats(reader, &json, err));
    EXPECT(json && strstr(json, "\"tuples\""));
    pf_string_release(json);
    OK(pf_release(reader, err));
    OK(pf_release(var, err));

    OK(pf_scope_var(scope, "out", &var, err));
    OK(pf_var_get_tensor(var, tuple, err));
    EXPECT(tuple->num_slots == 1);
    pf_tuple_release(tuple);
    OK(pf_var_set_tensor(var, tuple_of(1), err));
    OK(pf_release(var, err));

    char path[4096];
    snprintf(path, sizeof path, "%s/caller.npy", folder);
    pf_handle writer;
    OK(pf_writer_create(path, NULL, NULL, &writer, err));
    OK(pf_writer_write(writer, tuple_of(1), 1, err));
    OK(pf_writer_close(writer, err));
    OK(pf_release(writer, err));
    const char *names[] = {path};
    OK(pf_file_list(names, 1, NULL, NULL, &json, err));
    EXPECT(json && strstr(json, "npy:"));
    pf_string_release(json);
    OK(pf_format_list(&json, err));
    EXPECT(json && strstr(json, "\"npy\""));
    pf_string_release(json);
    STATUS(PF_IO, pf_reader_create(scope, "open_files", "files", NULL, 0,
                                   "{\"filenames\": [\"missing.npy\"]}", NULL, err));
    EXPECT(err->file && err->os_errno != 0 && err->record == -1);
}

static void staging(void) {
    pf_handle buffer;
    pf_tuple *tuple = NEW(pf_tuple, 1, PF_TUPLE_INIT);
    OK(pf_staging_create((pf_place){PF_CPU, 0}, 2, 0, &buffer, err));
    OK(pf_staging_put(buffer, tuple_of(5), 2, NULL, err));
    OK(pf_staging_get(buffer, NULL, tuple, err));
    expect_tuple(tuple, 5, __LINE__);
    pf_tuple_release(tuple);
    pf_staging_info *info = NEW(pf_staging_info, 1, PF_STAGING_INFO_INIT);
    OK(pf_staging_stats(buffer, info, err));
    EXPECT(info->size == sizeof *info && info->capacity == 2 && info->put == 1 && info->got == 1);
    uint64_t dropped = 77;
    OK(pf_staging_clear(buffer, &dropped, err));
    EXPECT(dropped == 0);
    OK(pf_release(buffer, err));
    OK(pf_staging_shutdown(err));
}

/* y = 2 * x, or an error if x begins with 9. */
static int twice(void *context, const pf_kernel_call *call) {
    count_call(context);
    if (call->size < sizeof *call || call->num_ins != 1 || call->num_outs != 1) return 1;
    const pf_tensor *in = tensor_at(call->ins, 0);
    const int64_t *x = in->data;
    if (x[0] == 9) {
        pf_failure *failure = NEW(pf_failure, 1, PF_FAILURE_INIT);
        failure->message = "nine";
        pf_kernel_fail(call, failure, NULL);
        return 1;
    }
    pf_tuple *shared = NEW(pf_tuple, 1, PF_TUPLE_INIT);
    if (pf_kernel_share(call, 0, shared, NULL) || shared->num_slots != 1) return 1;
    pf_tuple_release(shared);
    pf_tensor *like = NEW(pf_tensor, 1, PF_TENSOR_INIT);
    like->dtype = PF_INT64;
    like->rank = 1;
    like->dims = scalar_dims;
    void *data = NULL;
    if (pf_kernel_output(call, 0, like, &data, NULL)) return 1;
    int64_t y = 2 * x[0];
    memcpy(data, &y, sizeof y);
    like->data = &y;
    return pf_kernel_set(call, 0, like, NULL);
}

static void programs(pf_handle scope) {
    pf_handle kernel, program, parsed, executor, trace;
    int calls = 0, finished = 0;
    char *text = NULL;
    uint64_t size = 0;
    uint32_t block = 0;
    OK(pf_trace_start(0, &trace, err));
    OK(pf_kernel_register("abi.twice", twice, &calls, NULL, &kernel, err));
    OK(pf_kernel_list(&text, err));
    EXPECT(text && strstr(text, "abi.twice"));
    pf_string_release(text);
    OK(pf_program_create(&program, err));
    OK(pf_program_add_block(program, 0, &block, err));
    EXPECT(block == 1);
    OK(pf_release(program, err));
    OK(pf_program_create(&program, err));
    OK(pf_program_add_variable(program, 0, "{\"name\": \"x\", \"dtype\": \"int64\", \"dims\": [1]}", err));
    OK(pf_program_add_variable(program, 0, "{\"name\": \"y\"}", err));
    OK(pf_program_add_op(program, 0,
                         "{\"type\": \"call\", \"inputs\": [\"x\"], \"outputs\": [\"y\"], "
                         "\"attributes\": {\"kernel\": \"abi.twice\", \"attributes\": {}}}",
                         err));
    OK(pf_program_get_variable(program, 0, "x", &text, err));
    EXPECT(text && strstr(text, "int64"));
    pf_string_release(text);
    OK(pf_program_serialize(program, "protobuf", &text, &size, err));
    OK(pf_program_parse(text, size, &parsed, err));
    pf_string_release(text);
    OK(pf_executor_create((pf_place){PF_CPU, 0}, &executor, err));

    const char *feed_names[] = {"x"}, *fetch_names[] = {"y"};
    int64_t x = 21;
    pf_tensor *feed = NEW(pf_tensor, 1, PF_TENSOR_INIT);
    feed->dtype = PF_INT64;
    feed->rank = 1;
    feed->dims = scalar_dims;
    feed->data = &x;
    pf_tuple *fetched = NEW(pf_tuple, 1, PF_TUPLE_INIT);
    pf_wait *wait = NEW(pf_wait, 1, PF_WAIT_INIT);
    OK(pf_executor_run(executor, parsed, scope, feed_names, feed, 1, fetch_names, 1, wait, fetched, err));
    EXPECT(fetched->num_slots == 1 && *(const int64_t *)tensor_at(fetched->slots, 0)->data == 42);
    pf_tuple_release(fetched);
    x = 9;
    STATUS(PF_FAILED,
           pf_executor_run(executor, parsed, scope, feed_names, feed, 1, fetch_names, 1, wait, fetched, err));
    EXPECT(err->op && err->context > 0 && err->cause_message && strcmp(err->cause_message, "nine") == 0);
    EXPECT(calls == 2);
    OK(pf_release(kernel, err));
    OK(pf_kernel_register("abi.twice", twice, &finished, count_call, &kernel, err));
    OK(pf_release(kernel, err));
    EXPECT(finished == 1);
    OK(pf_trace_stop(trace, err));
    OK(pf_trace_export(trace, "summary", &text, err));
    EXPECT(text && text[0] == '{');
    pf_string_release(text);
    OK(pf_release(trace, err));
    OK(pf_release(executor, err));
    OK(pf_release(parsed, err));
    OK(pf_release(program, err));
}

static void devices(void) {
    uint8_t available = 77;
    char *reason = NULL;
    OK(pf_cuda_available(&available, &reason, err));
    EXPECT(available <= 1 && (available == 1) == (reason == NULL));
    pf_string_release(reason);
    pf_cuda_device_info *info = NEW(pf_cuda_device_info, 1, PF_CUDA_DEVICE_INFO_INIT);
    pf_status status = pf_cuda_device_stats(0, info, err);
    EXPECT(available ? status == PF_OK && info->total_bytes > 0 : status != PF_OK);
    EXPECT(info->size == sizeof *info);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    err = NEW(pf_error, 1, PF_ERROR_INIT);
    EXPECT(pf_abi_version() == PF_ABI_VERSION);
    EXPECT(pf_version() && pf_dtype_size(PF_FLOAT64) == 8 && strcmp(pf_dtype_name(PF_INT8), "int8") == 0);
    pf_handle scope;
    OK(pf_scope_create(0, &scope, err));
    queues(scope);
    shared_queue(scope);
    readers(scope, argv[1]);
    programs(scope);
    staging();
    devices();
    OK(pf_release(scope, err));
    pf_memory_info *memory = NEW(pf_memory_info, 1, PF_MEMORY_INFO_INIT);
    for (int i = 0; i < 1000; i++) { /* threads of the map reader may still have a tuple */
        OK(pf_memory_stats(memory, err));
        if (memory->tuples_on_loan == 0) break;
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    }
    EXPECT(memory->size == sizeof *memory && memory->tuples_on_loan == 0 && memory->live_lent_bytes == 0);
    pf_error_release(err);
    check_allocations();
    if (failures == 0) puts("fine");
    return failures != 0;
}
