// Every function returns PF_INVALID for a null pointer that must not be null, and names the parameter in the message.
#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

class Null : public Feed {
protected:
    void refused(int line, pf_status status, const char *name) {
        EXPECT_EQ("PF_INVALID", status_name(status)) << "line " << line;
        EXPECT_EQ(PF_INVALID, err.raw.status) << "line " << line;
        EXPECT_NE(std::string::npos, err.message().find(name)) << "line " << line << ": " << err.message();
    }

    Queue queue = numbers(2);
    Reader reader = create_py_array_reader(scope, "reader", "feeder");
    Variable variable = scope.var("x");
    const int64_t n = 1;
    const TensorView one = view(&n, {1});
    pf_tensor tensor = one.raw();
    pf_tuple tuple = PF_TUPLE_INIT;
    pf_queue_options options = PF_QUEUE_OPTIONS_INIT;
    pf_slot_spec slot = PF_SLOT_SPEC_INIT;
    pf_handle handle = 77;
    CError err;
};

constexpr pf_place kCpu = {PF_CPU, 0};

#define REFUSED(call, name) refused(__LINE__, call, name)

TEST_F(Null, EveryFunction) {
    const pf_handle s = scope.handle(), q = queue.handle(), r = reader.handle(), v = variable.handle();
    options.num_slots = 1;
    options.capacity = 1;

    REFUSED(pf_memory_stats(nullptr, &err), "out");
    REFUSED(pf_cancel_token_create(nullptr, &err), "token");
    REFUSED(pf_tuple_share(nullptr, &tuple, &err), "tuple");
    REFUSED(pf_tuple_share(&tuple, nullptr, &err), "out");
    REFUSED(pf_cuda_available(nullptr, nullptr, &err), "available");
    REFUSED(pf_cuda_device_count(nullptr, &err), "count");
    REFUSED(pf_cuda_device_stats(0, nullptr, &err), "out");
    REFUSED(pf_tuple_use(nullptr, 1, &err), "tuple");
    REFUSED(pf_tuple_release_on(nullptr, 1, &err), "tuple");
    REFUSED(pf_tuple_synchronize(nullptr, nullptr, &err), "tuple");
    REFUSED(pf_tuple_download(nullptr, 0, nullptr, 0, &err), "tuple");
    REFUSED(pf_tuple_download(&tuple, 0, nullptr, 1, &err), "to");
    pf_shared_queue_options shared = PF_SHARED_QUEUE_OPTIONS_INIT;
    shared.num_slots = 1;
    int fd = 77;
    REFUSED(pf_shared_queue_init_once(v, nullptr, &fd, &handle, &err), "options");
    REFUSED(pf_shared_queue_init_once(v, &shared, nullptr, &handle, &err), "fd");
    REFUSED(pf_shared_queue_init_once(v, &shared, &fd, nullptr, &err), "queue");
    REFUSED(pf_shared_queue_init_once(v, &shared, &fd, &handle, &err), "slots");
    REFUSED(pf_scope_create(0, nullptr, &err), "scope");
    REFUSED(pf_scope_global(nullptr, &err), "scope");
    REFUSED(pf_scope_var(s, nullptr, &handle, &err), "name");
    EXPECT_EQ(0u, handle);
    REFUSED(pf_scope_var(s, "x", nullptr, &err), "var");
    REFUSED(pf_scope_find(s, nullptr, &handle, &err), "name");
    REFUSED(pf_scope_find(s, "x", nullptr, &err), "var");
    REFUSED(pf_scope_erase(s, nullptr, &err), "name");
    REFUSED(pf_var_kind(v, nullptr, &err), "kind");
    REFUSED(pf_var_get_tensor(v, nullptr, &err), "out");
    REFUSED(pf_var_set_tensor(v, nullptr, &err), "tensor");
    REFUSED(pf_queue_init_once(v, nullptr, &handle, &err), "options");
    REFUSED(pf_queue_init_once(v, &options, nullptr, &err), "queue");
    REFUSED(pf_queue_init_once(v, &options, &handle, &err), "slots");
    options.slots = &slot;
    slot.rank = 1;
    REFUSED(pf_queue_init_once(v, &options, &handle, &err), "dims");
    EXPECT_EQ(0, err.raw.slot);
    REFUSED(pf_var_get_queue(v, nullptr, &err), "queue");
    REFUSED(pf_producer_create(q, nullptr, &err), "producer");
    REFUSED(pf_queue_push(q, nullptr, 1, PF_PASS_CURRENT, nullptr, &err), "tensors");
    REFUSED(
        pf_queue_push_lent(q, nullptr, 1, PF_PASS_CURRENT, [](void *) {}, nullptr, nullptr, &err), "tensors");
    REFUSED(pf_queue_push_lent(q, &tensor, 1, PF_PASS_CURRENT, nullptr, nullptr, nullptr, &err), "release");
    REFUSED(pf_queue_reserve(q, nullptr, 1, PF_PASS_CURRENT, nullptr, &tuple, &err), "tensors");
    REFUSED(pf_queue_reserve(q, &tensor, 1, PF_PASS_CURRENT, nullptr, nullptr, &err), "out");
    REFUSED(pf_queue_commit(nullptr, &err), "reservation");
    REFUSED(pf_queue_pop(q, nullptr, nullptr, &err), "out");
    REFUSED(pf_queue_fail(q, PF_PASS_CURRENT, nullptr, &err), "failure");
    REFUSED(pf_queue_wait_pass(q, PF_PASS_NONE, nullptr, nullptr, &err), "pass");
    REFUSED(pf_queue_get_start(q, PF_PASS_CURRENT, nullptr, &err), "start");
    REFUSED(pf_queue_stats(q, nullptr, &err), "out");
    int64_t dims[PF_MAX_RANK];
    REFUSED(pf_queue_slot(q, 0, nullptr, dims, &err), "out");
    REFUSED(pf_queue_slot(q, 0, &slot, nullptr, &err), "dims");
    const char *ins[] = {"reader", nullptr};
    REFUSED(pf_reader_create(s, nullptr, "b", ins, 1, "{}", nullptr, &err), "op");
    REFUSED(pf_reader_create(s, "create_batch_reader", nullptr, ins, 1, "{}", nullptr, &err), "out");
    REFUSED(pf_reader_create(s, "create_batch_reader", "b", nullptr, 1, "{}", nullptr, &err), "ins");
    REFUSED(pf_reader_create(s, "create_zip_reader", "b", ins, 2, "{}", nullptr, &err), "ins");
    REFUSED(pf_reader_create(s, "create_batch_reader", "b", ins, 1, nullptr, nullptr, &err), "batch_size");
    REFUSED(pf_var_get_reader(v, nullptr, &err), "reader");
    REFUSED(pf_reader_next(r, nullptr, nullptr, &err), "out");
    REFUSED(pf_reader_next_in_loop(r, 1, nullptr, nullptr, &err), "out");
    REFUSED(pf_reader_begin_loop(r, 0, nullptr, &err), "loop");
    uint8_t has = 77;
    REFUSED(pf_reader_has_next(r, nullptr, nullptr, &err), "out");
    REFUSED(pf_reader_at(r, 0, nullptr, &err), "out");
    const char *outs[] = {"x", nullptr};
    REFUSED(pf_scope_read(s, nullptr, outs, 1, nullptr, &err), "reader");
    REFUSED(pf_scope_read(s, "reader", nullptr, 1, nullptr, &err), "outs");
    REFUSED(pf_scope_read(s, "reader", outs, 2, nullptr, &err), "outs");
    (void)has;

    const pf_failure failure = PF_FAILURE_INIT;
    const auto function = [](void *, pf_handle, uint64_t, const pf_tuple *) { return 0; };
    uint64_t ticket = 77;
    char junk = 0, *text = &junk, *path = &junk;
    REFUSED(pf_reader_stats(r, nullptr, &err), "json");
    REFUSED(pf_reader_get_state(r, nullptr, &err), "state");
    REFUSED(pf_reader_set_state(r, nullptr, 1, &err), "state");
    REFUSED(pf_map_workers_create(r, nullptr, &err), "workers");
    REFUSED(pf_map_workers_next(r, nullptr, nullptr, &ticket, &err), "out");
    EXPECT_EQ(0u, ticket);
    REFUSED(pf_map_workers_next(r, nullptr, &tuple, nullptr, &err), "ticket");
    REFUSED(pf_map_workers_complete(r, 0, nullptr, 1, &err), "tensors");
    REFUSED(pf_map_workers_reserve(r, nullptr, 1, &tuple, &err), "tensors");
    REFUSED(pf_map_workers_reserve(r, nullptr, 0, nullptr, &err), "out");
    REFUSED(pf_map_workers_commit(r, 0, nullptr, &err), "reservation");
    REFUSED(pf_map_workers_fail(r, 0, nullptr, &err), "failure");
    REFUSED(pf_map_workers_skip(r, 0, nullptr, &err), "failure");
    uint64_t place = 0;
    REFUSED(pf_map_workers_position(r, 0, nullptr, &place, &err), "pass");
    REFUSED(pf_map_workers_position(r, 0, &place, nullptr, &err), "index");
    REFUSED(pf_map_workers_start(r, nullptr, nullptr, 1, nullptr, &err), "function");
    EXPECT_STATUS(PF_STALE_HANDLE,
                  pf_map_workers_start(r, +function, nullptr, 1, nullptr, &err));  // a handle of another kind
    EXPECT_STATUS(PF_STALE_HANDLE, pf_map_workers_fail(r, 0, &failure, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_map_workers_skip(r, 0, &failure, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_map_workers_position(r, 0, &place, &place, &err));
    REFUSED(pf_format_list(nullptr, &err), "json");
    char *json = nullptr;
    REFUSED(pf_file_list(ins, 1, nullptr, nullptr, nullptr, &err), "json");
    REFUSED(pf_file_list(nullptr, 1, nullptr, nullptr, &json, &err), "names");
    REFUSED(pf_file_list(ins, 2, nullptr, nullptr, &json, &err), "names");
    REFUSED(pf_map_processes_create(r, queue.handle(), nullptr, &err), "processes");
    REFUSED(pf_map_processes_next(r, nullptr, nullptr, &err), "out");
    pf_map_event_release(nullptr);
    REFUSED(pf_format_register(nullptr, outs, 1, nullptr, &handle, &err), "tag");
    REFUSED(pf_format_register("null", nullptr, 1, nullptr, &handle, &err), "suffixes");
    REFUSED(pf_format_register("null", outs, 2, nullptr, &handle, &err), "suffixes");
    REFUSED(pf_format_register("null", outs, 0, nullptr, nullptr, &err), "format");
    REFUSED(pf_format_wait(r, nullptr, nullptr, &path, &text, &err), "queue");
    EXPECT_TRUE(path == nullptr && text == nullptr);
    REFUSED(pf_format_wait(r, nullptr, &handle, nullptr, &text, &err), "path");
    REFUSED(pf_format_wait(r, nullptr, &handle, &path, nullptr, &err), "options");
    REFUSED(pf_writer_create(nullptr, nullptr, nullptr, &handle, &err), "filename");
    REFUSED(pf_writer_create("null.raw", nullptr, nullptr, nullptr, &err), "writer");
    REFUSED(pf_writer_set_names(r, nullptr, 1, &err), "names");
    const char *one_of_two[] = {"x", nullptr};
    REFUSED(pf_writer_set_names(r, one_of_two, 2, &err), "names[i]");
    REFUSED(pf_writer_write(r, nullptr, 1, &err), "tensors");

    EXPECT_EQ(0u, queue.stats().num_tuples);
    EXPECT_FALSE(scope.has("r"));
    EXPECT_FALSE(scope.has("b"));
}

TEST_F(Null, ProgramsAndKernels) {
    const detail::Handle program = detail::make_handle(pf_program_create);
    const detail::Handle executor = detail::make_handle(
        [](pf_handle *id, pf_error *error) { return pf_executor_create(kCpu, id, error); });
    const pf_handle p = program.get(), s = scope.handle();
    char junk = 0, *text = &junk;
    uint64_t size = 77;

    REFUSED(pf_program_create(nullptr, &err), "program");
    REFUSED(pf_program_clone(p, nullptr, &err), "clone");
    REFUSED(pf_program_add_block(p, 0, nullptr, &err), "block");
    REFUSED(pf_program_add_variable(p, 0, nullptr, &err), "variable");
    REFUSED(pf_program_add_op(p, 0, nullptr, &err), "op");
    REFUSED(pf_program_get_variable(p, 0, nullptr, &text, &err), "name");
    EXPECT_EQ(nullptr, text);
    REFUSED(pf_program_get_variable(p, 0, "x", nullptr, &err), "variable");
    text = &junk;
    REFUSED(pf_program_serialize(p, nullptr, &text, &size, &err), "form");
    EXPECT_TRUE(text == nullptr && size == 0);
    REFUSED(pf_program_serialize(p, "json", nullptr, &size, &err), "data");
    REFUSED(pf_program_serialize(p, "json", &text, nullptr, &err), "size");
    REFUSED(pf_program_parse(nullptr, 1, &handle, &err), "data");
    REFUSED(pf_program_parse("{}", 2, nullptr, &err), "program");
    REFUSED(pf_program_save(p, nullptr, &err), "path");
    REFUSED(pf_program_load(nullptr, &handle, &err), "path");
    REFUSED(pf_program_load("null.json", nullptr, &err), "program");

    const auto kernel = [](void *, const pf_kernel_call *) { return 0; };
    handle = 77;
    REFUSED(pf_kernel_register(nullptr, +kernel, nullptr, nullptr, &handle, &err), "name");
    EXPECT_EQ(0u, handle);
    REFUSED(pf_kernel_register("null", nullptr, nullptr, nullptr, &handle, &err), "kernel");
    REFUSED(pf_kernel_register("null", +kernel, nullptr, nullptr, nullptr, &err), "handle");
    REFUSED(pf_kernel_load(nullptr, &err), "path");
    REFUSED(pf_kernel_list(nullptr, &err), "json");

    pf_kernel_call call = {};
    void *data = &junk;
    const pf_failure failure = PF_FAILURE_INIT;
    REFUSED(pf_kernel_output(nullptr, 0, &tensor, &data, &err), "call");
    EXPECT_EQ(nullptr, data);
    REFUSED(pf_kernel_set(nullptr, 0, &tensor, &err), "call");
    REFUSED(pf_kernel_share(nullptr, 0, &tuple, &err), "call");
    REFUSED(pf_kernel_fail(nullptr, &failure, &err), "call");
    REFUSED(pf_kernel_output(&call, 0, &tensor, &data, &err), "call: expected a size");
    call.size = sizeof call;
    call.run = 77;  // a run that does not exist
    REFUSED(pf_kernel_output(&call, 0, nullptr, &data, &err), "like");
    REFUSED(pf_kernel_set(&call, 0, nullptr, &err), "tensor");
    REFUSED(pf_kernel_share(&call, 0, nullptr, &err), "out");
    REFUSED(pf_kernel_fail(&call, nullptr, &err), "failure");
    EXPECT_STATUS(PF_STATE, pf_kernel_output(&call, 0, &tensor, &data, &err));
    EXPECT_STATUS(PF_STATE, pf_kernel_set(&call, 0, &tensor, &err));
    EXPECT_STATUS(PF_STATE, pf_kernel_share(&call, 0, &tuple, &err));
    EXPECT_STATUS(PF_STATE, pf_kernel_fail(&call, &failure, &err));

    const char *const some[] = {"x", nullptr};
    const pf_handle e = executor.get();
    REFUSED(pf_executor_create(kCpu, nullptr, &err), "executor");
    REFUSED(pf_executor_run(e, p, s, nullptr, &tensor, 1, nullptr, 0, nullptr, nullptr, &err), "feed_names");
    REFUSED(pf_executor_run(e, p, s, some, &tensor, 2, nullptr, 0, nullptr, nullptr, &err), "feed_names");
    REFUSED(pf_executor_run(e, p, s, some, nullptr, 1, nullptr, 0, nullptr, nullptr, &err), "tensors");
    REFUSED(pf_executor_run(e, p, s, nullptr, nullptr, 0, nullptr, 1, nullptr, &tuple, &err), "fetch_names");
    REFUSED(pf_executor_run(e, p, s, nullptr, nullptr, 0, some, 2, nullptr, &tuple, &err), "fetch_names");
    REFUSED(pf_executor_run(e, p, s, nullptr, nullptr, 0, some, 1, nullptr, nullptr, &err), "fetched");
    EXPECT_STATUS(PF_OK, pf_executor_run(e, p, s, nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr, &err));
    EXPECT_STATUS(PF_OK,
                  pf_executor_run(e, p, s, nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr, nullptr));
    for (const pf_handle wrong : {pf_handle{0}, s}) {
        EXPECT_STATUS(PF_STALE_HANDLE,
                      pf_executor_run(wrong, p, s, nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr, &err));
        EXPECT_STATUS(PF_STALE_HANDLE,
                      pf_executor_run(e, wrong, s, nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr, &err));
    }
    EXPECT_STATUS(PF_STALE_HANDLE,
                  pf_executor_run(e, p, p, nullptr, nullptr, 0, nullptr, 0, nullptr, nullptr, &err));

    REFUSED(pf_trace_start(0, nullptr, &err), "trace");
    REFUSED(pf_trace_export(p, nullptr, &text, &err), "form");
    REFUSED(pf_trace_export(p, "summary", nullptr, &err), "text");
}

// The same without a pf_error.
TEST_F(Null, WithoutAnError) {
    EXPECT_STATUS(PF_INVALID, pf_memory_stats(nullptr, nullptr));
    EXPECT_STATUS(PF_INVALID, pf_queue_pop(queue.handle(), nullptr, nullptr, nullptr));
    EXPECT_STATUS(PF_INVALID, pf_scope_read(scope.handle(), nullptr, nullptr, 0, nullptr, nullptr));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_close(0, PF_PASS_CURRENT, nullptr));
    EXPECT_STATUS(PF_OK, pf_queue_close(queue.handle(), PF_PASS_CURRENT, nullptr));
    EXPECT_STATUS(PF_END, pf_queue_pop(queue.handle(), nullptr, &tuple, nullptr));
    EXPECT_STATUS(PF_OK, pf_queue_reopen(queue.handle(), nullptr, nullptr, nullptr));
}

TEST_F(Null, PartsOfATensor) {
    const pf_handle q = queue.handle();
    tensor.dims = nullptr;
    REFUSED(pf_queue_push(q, &tensor, 1, PF_PASS_CURRENT, nullptr, &err), "dims");
    EXPECT_EQ(0, err.raw.slot);
    tensor = one.raw();
    tensor.lod_levels = 1;
    REFUSED(pf_queue_push(q, &tensor, 1, PF_PASS_CURRENT, nullptr, &err), "lod");
    EXPECT_EQ(0, err.raw.slot);
    tensor = one.raw();
    tensor.data = nullptr;
    REFUSED(pf_queue_push(q, &tensor, 1, PF_PASS_CURRENT, nullptr, &err), "data");
    REFUSED(pf_var_set_tensor(variable.handle(), &tensor, &err), "data");
}

// Out-pointers are zeroed before anything else happens, so that an old value cannot be used after an error.
TEST_F(Null, OutPointersAreZeroedFirst) {
    std::memset(&tuple, 0xff, sizeof tuple);
    tuple.size = sizeof tuple;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_pop(0, nullptr, &tuple, &err));
    EXPECT_EQ(0u, tuple.num_slots);
    EXPECT_EQ(nullptr, tuple.slots);
    EXPECT_EQ(0u, tuple.loan);
    uint64_t pass = 77, dropped = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_reopen(0, &pass, &dropped, &err));
    EXPECT_EQ(PF_PASS_NONE, pass);
    EXPECT_EQ(0u, dropped);
    pass = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_wait_pass(0, PF_PASS_NONE, nullptr, &pass, &err));
    EXPECT_EQ(PF_PASS_NONE, pass);
    uint64_t start = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_get_start(0, PF_PASS_CURRENT, &start, &err));
    EXPECT_EQ(0u, start);
    EXPECT_STATUS(PF_STALE_HANDLE, pf_queue_set_start(0, PF_PASS_CURRENT, 0, &err));
    uint8_t has = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_has_next(0, nullptr, &has, &err));
    EXPECT_EQ(0, has);
    int32_t kind = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_var_kind(0, &kind, &err));
    EXPECT_EQ(0, kind);
    char junk = 0, *text = &junk, *path = &junk;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_stats(0, &text, &err));
    EXPECT_EQ(nullptr, text);
    text = &junk;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_get_state(0, &text, &err));
    EXPECT_STATUS(PF_STALE_HANDLE, pf_reader_set_state(0, "{}", 1, &err));
    EXPECT_EQ(nullptr, text);
    uint64_t index = 77;
    start = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_map_workers_position(0, 0, &start, &index, &err));
    EXPECT_TRUE(start == 0 && index == 0);
    text = &junk;
    handle = pass = 77;
    EXPECT_STATUS(PF_STALE_HANDLE, pf_format_wait(0, nullptr, &handle, &path, &text, &err));
    EXPECT_TRUE(handle == 0 && path == nullptr && text == nullptr);
    EXPECT_STATUS(PF_STALE_HANDLE, pf_map_workers_next(0, nullptr, &tuple, &pass, &err));
    EXPECT_EQ(0u, pass);
    handle = 77;
    EXPECT_STATUS(PF_INVALID, pf_format_register("", nullptr, 0, nullptr, &handle, &err));
    EXPECT_EQ(0u, handle);
    handle = 77;
    EXPECT_STATUS(PF_INVALID, pf_writer_create("no format's", nullptr, nullptr, &handle, &err));
    EXPECT_EQ(0u, handle);
    pf_string_release(nullptr);
    for (auto make : {pf_var_get_queue, pf_var_get_reader, pf_map_workers_create}) {
        handle = 77;
        EXPECT_STATUS(PF_STALE_HANDLE, make(0, &handle, &err));
        EXPECT_EQ(0u, handle);
    }
}

}  // namespace
