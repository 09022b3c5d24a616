// In a child of fork() every call returns PF_FORKED at once, and releasing objects there does not affect the parent.
#include <sys/wait.h>
#include <unistd.h>

#include <pyfeed_program.hpp>

#include "support.hpp"

using namespace pyfeed;
using namespace pyfeed_test;

namespace {

// Runs f in a child process, for 20 seconds at most. Returns the errors that f found, and "done" if f has returned.
template <class F>
std::string in_child(F &&f) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return "no pipe";
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);  // a call that hangs kills the child
        close(pipe_ends[0]);
        std::string wrong;
        f(wrong);
        wrong += "done";
        const ssize_t n = write(pipe_ends[1], wrong.data(), wrong.size());
        _exit(n == static_cast<ssize_t>(wrong.size()) ? 0 : 1);
    }
    close(pipe_ends[1]);
    std::string said;
    char buffer[4096];
    ssize_t n;
    while ((n = read(pipe_ends[0], buffer, sizeof buffer)) > 0) said.append(buffer, static_cast<size_t>(n));
    close(pipe_ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) said += " killed by signal " + std::to_string(WTERMSIG(status));
    return said;
}

void expect_forked(std::string &wrong, const char *call, pf_status status) {
    if (status != PF_FORKED) wrong += std::string(call) + " is " + pf_status_name(status) + "\n";
}
#define FORKED(call) expect_forked(wrong, #call, call)

// Calls all functions that return a status, with handles that are valid in the parent.
void every_function(std::string &wrong, pf_handle scope, pf_handle var, pf_handle queue, pf_handle reader,
                    pf_handle token, pf_handle workers, pf_handle format, pf_handle writer) {
    const int64_t n = 1;
    const TensorView number = view(&n, {1});
    const pf_tensor tensor = number.raw();
    pf_tuple tuple = PF_TUPLE_INIT, slot = PF_TUPLE_INIT;
    pf_memory_info stats = PF_MEMORY_INFO_INIT;
    pf_queue_info info = PF_QUEUE_INFO_INIT;
    pf_staging_info buffer = PF_STAGING_INFO_INIT;
    pf_queue_options options = PF_QUEUE_OPTIONS_INIT;
    pf_slot_spec spec = PF_SLOT_SPEC_INIT;
    pf_map_event event = PF_MAP_EVENT_INIT;
    pf_failure failure = PF_FAILURE_INIT;
    pf_handle handle = 77;
    int64_t dims[PF_MAX_RANK];
    uint64_t pass = 77, dropped = 77;
    int32_t kind = 77;
    uint64_t ticket = 77;
    uint8_t has = 77;
    const char *outs[] = {"x"};
    char junk = 0, *text = &junk, *path = &junk, *json = &junk;
    pf_error err = PF_ERROR_INIT;

    FORKED(pf_memory_stats(&stats, &err));
    FORKED(pf_retain(queue, &err));
    FORKED(pf_release(queue, &err));
    FORKED(pf_cancel_token_create(&handle, &err));
    FORKED(pf_cancel_token_cancel(token, &err));
    FORKED(pf_poll_now(&err));
    FORKED(pf_tuple_share(&slot, &tuple, &err));
    uint8_t available = 77;
    uint32_t count = 77;
    pf_cuda_device_info device = PF_CUDA_DEVICE_INFO_INIT;
    FORKED(pf_cuda_available(&available, nullptr, &err));
    FORKED(pf_cuda_device_count(&count, &err));
    FORKED(pf_cuda_device_stats(0, &device, &err));
    FORKED(pf_tuple_use(&tuple, 1, &err));
    FORKED(pf_tuple_release_on(&tuple, 1, &err));
    FORKED(pf_tuple_synchronize(&tuple, nullptr, &err));
    FORKED(pf_tuple_download(&tuple, 0, nullptr, 0, &err));
    pf_shared_queue_options shared = PF_SHARED_QUEUE_OPTIONS_INIT;
    int fd = 77;
    FORKED(pf_shared_queue_init_once(var, &shared, &fd, &handle, &err));
    FORKED(pf_shared_queue_expect(queue, 1, &err));
    FORKED(pf_shared_queue_report_exit(queue, 1, 0, &err));
    uint8_t at_work = 1;
    FORKED(pf_shared_queue_at_work(queue, nullptr, 0, &at_work, &err));
    FORKED(pf_scope_create(0, &handle, &err));
    FORKED(pf_scope_global(&handle, &err));
    FORKED(pf_scope_var(scope, "x", &handle, &err));
    FORKED(pf_scope_find(scope, "feeder", &handle, &err));
    FORKED(pf_scope_erase(scope, "feeder", &err));
    FORKED(pf_var_kind(var, &kind, &err));
    FORKED(pf_var_get_tensor(var, &tuple, &err));
    FORKED(pf_var_set_tensor(var, &tensor, &err));
    FORKED(pf_queue_init_once(var, &options, &handle, &err));
    FORKED(pf_var_get_queue(var, &handle, &err));
    FORKED(pf_producer_create(queue, &handle, &err));
    FORKED(pf_queue_push(queue, &tensor, 1, PF_PASS_CURRENT, nullptr, &err));
    FORKED(pf_queue_push_lent(
        queue, &tensor, 1, PF_PASS_CURRENT, [](void *) { _exit(3); }, nullptr, nullptr, &err));
    FORKED(pf_queue_reserve(queue, &tensor, 1, PF_PASS_CURRENT, nullptr, &tuple, &err));
    FORKED(pf_queue_commit(&slot, &err));
    FORKED(pf_queue_pop(queue, nullptr, &tuple, &err));
    FORKED(pf_queue_close(queue, PF_PASS_CURRENT, &err));
    FORKED(pf_queue_fail(queue, PF_PASS_CURRENT, &failure, &err));
    FORKED(pf_queue_reopen(queue, &pass, &dropped, &err));
    FORKED(pf_queue_wait_pass(queue, PF_PASS_NONE, nullptr, &pass, &err));
    uint64_t start = 77, position = 77, index = 77;
    FORKED(pf_queue_get_start(queue, PF_PASS_CURRENT, &start, &err));
    FORKED(pf_queue_set_start(queue, PF_PASS_CURRENT, 0, &err));
    FORKED(pf_queue_shutdown(queue, &err));
    FORKED(pf_queue_stats(queue, &info, &err));
    FORKED(pf_queue_slot(queue, 0, &spec, dims, &err));
    FORKED(
        pf_reader_create(scope, "create_batch_reader", "b", outs, 1, "{\"batch_size\": 2}", nullptr, &err));
    FORKED(pf_var_get_reader(var, &handle, &err));
    FORKED(pf_reader_next(reader, nullptr, &tuple, &err));
    FORKED(pf_reader_has_next(reader, nullptr, &has, &err));
    FORKED(pf_reader_at(reader, 0, &tuple, &err));
    FORKED(pf_reader_reset(reader, &err));
    uint64_t loop;
    FORKED(pf_reader_begin_loop(reader, 0, &loop, &err));
    FORKED(pf_reader_next_in_loop(reader, 1, nullptr, &tuple, &err));
    FORKED(pf_scope_read(scope, "reader", outs, 1, nullptr, &err));
    FORKED(pf_reader_stats(reader, &json, &err));
    FORKED(pf_reader_get_state(reader, &json, &err));
    FORKED(pf_reader_set_state(reader, "{}", 1, &err));
    FORKED(pf_map_workers_create(reader, &handle, &err));
    FORKED(pf_map_workers_next(workers, nullptr, &tuple, &ticket, &err));
    FORKED(pf_map_workers_complete(workers, 0, &tensor, 1, &err));
    FORKED(pf_map_workers_reserve(workers, &tensor, 1, &tuple, &err));
    FORKED(pf_map_workers_commit(workers, 0, &tuple, &err));
    FORKED(pf_map_workers_fail(workers, 0, &failure, &err));
    FORKED(pf_map_workers_skip(workers, 0, &failure, &err));
    FORKED(pf_map_workers_position(workers, 0, &position, &index, &err));
    FORKED(pf_map_workers_start(
        workers, [](void *, pf_handle, uint64_t, const pf_tuple *) -> int { _exit(3); }, nullptr, 1,
        [](void *) { _exit(3); }, &err));
    FORKED(pf_map_processes_create(workers, queue, &handle, &err));
    FORKED(pf_map_processes_next(workers, nullptr, &event, &err));
    FORKED(pf_format_list(&text, &err));
    FORKED(pf_file_list(outs, 1, nullptr, nullptr, &text, &err));
    if (text != nullptr) wrong += "a string was not zeroed\n";
    text = &junk;
    FORKED(pf_format_register("forked", outs, 1, nullptr, &handle, &err));
    FORKED(pf_format_wait(format, nullptr, &handle, &path, &text, &err));
    FORKED(pf_writer_create("x.raw", nullptr, nullptr, &handle, &err));
    FORKED(pf_writer_set_names(writer, outs, 1, &err));
    FORKED(pf_writer_write(writer, &tensor, 1, &err));
    FORKED(pf_writer_close(writer, &err));
    FORKED(pf_staging_create({PF_CPU, 0}, 2, 0, &handle, &err));
    FORKED(pf_staging_put(queue, &tensor, 1, nullptr, &err));
    FORKED(pf_staging_get(queue, nullptr, &tuple, &err));
    FORKED(pf_staging_clear(queue, &dropped, &err));
    FORKED(pf_staging_stats(queue, &buffer, &err));
    FORKED(pf_staging_shutdown(&err));

    if (err.status != PF_FORKED) wrong += "the error has another status\n";
    const std::string message = err.message != nullptr ? err.message : "";
    if (message.find("fork") == std::string::npos || message.find("spawn") == std::string::npos) {
        wrong += "the message says: " + message + "\n";
    }
    pf_error_release(&err);
    if (err.message != nullptr) wrong += "the error was not released\n";
    if (handle != 0 || pass != PF_PASS_NONE || dropped != 0 || kind != 0 || has != 0 || ticket != 0 ||
        start != 0 || position != 0 || index != 0 || tuple.loan != 0 || text != nullptr || path != nullptr ||
        json != nullptr) {
        wrong += "out-pointers were not zeroed\n";
    }
    // Functions that do not call Go still work.
    if (pf_abi_version() != PF_ABI_VERSION || std::string(pf_version()) != PF_VERSION) wrong += "version\n";
    if (std::string(pf_status_name(PF_FORKED)) != "PF_FORKED") wrong += "status name\n";
    if (pf_dtype_size(PF_FLOAT32) != 4) wrong += "dtype size\n";
}

// ctest runs each test in its own process, so the parent has not called the library before.
TEST(ForkFirst, BeforeTheFirstCall) {
    EXPECT_EQ("done", in_child([](std::string &wrong) {
                  every_function(wrong, 1, 1, 1, 1, 1, 1, 1, 1);
                  pf_tuple tuple = PF_TUPLE_INIT;
                  pf_tuple_release(&tuple);
              }));
}

class Fork : public Feed {
protected:
    Queue queue = numbers(4);
    Reader reader = create_py_array_reader(scope, "reader", "feeder");
    CancelToken token;
};

TEST_F(Fork, EveryFunction) {
    const std::string path = testing::TempDir() + "pyfeed_fork_" + std::to_string(getpid()) + ".raw";
    const Writer writer(path);
    const Reader mapped = reader.map([](const Tuple &in, const Emit &emit) { emit(in); }, 1);
    const detail::Handle workers = detail::make_handle(
        [&](pf_handle *id, pf_error *err) { return pf_map_workers_create(mapped.handle(), id, err); });
    const detail::Handle format = detail::make_handle([&](pf_handle *id, pf_error *err) {
        return pf_format_register(new_tag().c_str(), nullptr, 0, nullptr, id, err);
    });
    push_number(queue, 5);
    const Variable variable = scope.find("feeder");
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ("done", in_child([&](std::string &wrong) {
                  every_function(wrong, scope.handle(), variable.handle(), queue.handle(), reader.handle(),
                                 token.handle(), workers.get(), format.get(), writer.handle());
              }));
    EXPECT_LT(std::chrono::steady_clock::now() - start, kStuck);
    EXPECT_EQ(5, next_number(queue));  // the parent continues
}

// The functions of programs, kernels and traces.
void programs(std::string &wrong, pf_handle scope, pf_handle program, pf_handle executor, pf_handle trace,
              const pf_kernel_call *call) {
    const int64_t n = 1;
    const TensorView number = view(&n, {1});
    const pf_tensor tensor = number.raw();
    const pf_failure failure = PF_FAILURE_INIT;
    pf_tuple tuple = PF_TUPLE_INIT;
    pf_handle handle = 77;
    uint32_t block = 77;
    uint64_t size = 77;
    char junk = 0, *text = &junk;
    void *data = &junk;
    const char *names[] = {"x"};
    pf_error err = PF_ERROR_INIT;

    FORKED(pf_program_create(&handle, &err));
    FORKED(pf_program_clone(program, &handle, &err));
    FORKED(pf_program_add_block(program, 0, &block, &err));
    FORKED(pf_program_add_variable(program, 0, "{}", &err));
    FORKED(pf_program_add_op(program, 0, "{}", &err));
    FORKED(pf_program_serialize(program, "json", &text, &size, &err));
    if (text != nullptr || size != 0) wrong += "a form was not zeroed\n";
    text = &junk;
    FORKED(pf_program_get_variable(program, 0, "x", &text, &err));
    FORKED(pf_program_parse("{}", 2, &handle, &err));
    FORKED(pf_program_save(program, "forked.json", &err));
    FORKED(pf_program_load("forked.json", &handle, &err));
    FORKED(pf_kernel_register(
        "forked", [](void *, const pf_kernel_call *) -> int { _exit(3); }, nullptr, [](void *) { _exit(3); },
        &handle, &err));
    FORKED(pf_kernel_load("forked.so", &err));
    if (text != nullptr) wrong += "a string was not zeroed\n";
    text = &junk;
    FORKED(pf_kernel_list(&text, &err));
    FORKED(pf_kernel_output(call, 0, &tensor, &data, &err));
    FORKED(pf_kernel_set(call, 0, &tensor, &err));
    FORKED(pf_kernel_share(call, 0, &tuple, &err));
    FORKED(pf_kernel_fail(call, &failure, &err));
    FORKED(pf_executor_create({PF_CPU, 0}, &handle, &err));
    FORKED(pf_executor_run(executor, program, scope, names, &tensor, 1, names, 1, nullptr, &tuple, &err));
    FORKED(pf_trace_start(0, &handle, &err));
    FORKED(pf_trace_stop(trace, &err));
    if (text != nullptr) wrong += "a string was not zeroed\n";
    text = &junk;
    FORKED(pf_trace_export(trace, "summary", &text, &err));
    if (err.status != PF_FORKED) wrong += "the error has another status\n";
    if (handle != 0 || block != 0 || text != nullptr || data != nullptr || tuple.loan != 0) {
        wrong += "out-pointers were not zeroed\n";
    }
    pf_error_release(&err);
}

TEST_F(Fork, ProgramsAndKernels) {
    Program program;
    Executor executor;
    std::string in_kernel;
    RegisteredKernel kernel = register_kernel("forks", [&](KernelContext &call) {
        in_kernel = in_child([&](std::string &wrong) {
            programs(wrong, scope.handle(), program.handle(), executor.handle(), 1, &call.raw());
        });
    });
    program.add_op(0, R"({"type": "call", "attributes": {"kernel": "forks"}})");
    executor.run(program, scope, {}, {}, kStuck);
    EXPECT_EQ("done", in_kernel);  // a fork in the middle of a run
    EXPECT_EQ("done", in_child([&](std::string &wrong) {
                  try {
                      executor.run(program, scope);
                      wrong += "it ran\n";
                  } catch (const ForkError &) {
                  }
                  {
                      const Program gone = std::move(program);
                  }
                  {
                      const Executor gone = std::move(executor);
                  }
                  {
                      const RegisteredKernel gone = std::move(kernel);
                  }
              }));
    executor.run(program, scope, {}, {}, kStuck);  // the parent continues
}

TEST_F(Fork, WhatIsGivenBackHarmsNobody) {
    push_number(queue, 5);
    push_number(queue, 6);
    bool released = false;
    const int64_t n = 7;
    queue.push_lent({view(&n, {1})}, [&] { released = true; });
    auto popped = queue.pop();
    auto slot = std::optional<Reservation>(queue.reserve({tensor_spec<int64_t>({1})}));
    EXPECT_EQ("done", in_child([&](std::string &wrong) {
                  if (number(*popped) != 5) wrong += "memory of the parent cannot be read\n";
                  popped.reset();
                  slot.reset();
                  pf_tuple foreign = PF_TUPLE_INIT;
                  foreign.loan = 12345;
                  pf_tuple_release(&foreign);
                  if (foreign.loan != 0) wrong += "the tuple was not zeroed\n";
                  {
                      const Queue gone = std::move(queue);
                  }
                  {
                      const Reader gone = std::move(reader);
                  }
                  {
                      const Scope gone = std::move(scope);
                  }
                  {
                      const CancelToken gone = std::move(token);
                  }
                  if (released) wrong += "lent memory was released in the child\n";
              }));
    EXPECT_EQ(5, number(*popped));
    slot->at(0).mutable_data<int64_t>()[0] = 8;
    slot->commit();
    EXPECT_EQ(6, next_number(queue));
    EXPECT_EQ(7, next_number(queue));
    EXPECT_EQ(8, next_number(queue));
    EXPECT_TRUE(released);
}

// A fork does not copy threads. The child has the descriptor of the writer's file, but must not change the file.
TEST_F(Fork, FormatsWritersAndMapsGivenBackHarmNobody) {
    const std::string path = testing::TempDir() + "pyfeed_fork_" + std::to_string(getpid()) + ".raw";
    const std::string tag = new_tag();
    std::optional<RegisteredFormat> format(
        register_format(tag, {},
                        [](const std::string &, const std::string &, const Queue &to) {
                            for (int64_t n = 1; n <= 3; n++) push_number(to, n);
                        },
                        {{{1}, DType::int64}}));
    std::optional<Writer> writer(path);
    std::optional<Reader> mapped(reader.map([](const Tuple &in, const Emit &emit) { emit(in); }, 2));
    const int64_t n = 7;
    writer->write({view(&n, {1})});
    push_number(queue, 5);
    EXPECT_EQ(5, next_number(*mapped));
    EXPECT_EQ("done", in_child([&](std::string &) {
                  format.reset();
                  writer.reset();
                  mapped.reset();
              }));
    writer->write({view(&n, {1})});
    writer->close();
    EXPECT_EQ((Numbers{7, 7}),
              rest(open_files(scope, "files", {path}, OpenFiles().slots({{{1}, DType::int64}}))));
    EXPECT_EQ((Numbers{1, 2, 3}), rest(open_files(scope, "files", {tag + ":" + path})));
    push_number(queue, 6);
    EXPECT_EQ(6, next_number(*mapped));
    std::remove(path.c_str());
}

TEST_F(Fork, AnExceptionInCpp) {
    EXPECT_EQ("done", in_child([&](std::string &wrong) {
                  try {
                      push_number(queue, 1);
                      wrong += "nothing was thrown\n";
                  } catch (const ForkError &e) {
                      if (e.status() != PF_FORKED) wrong += "another status\n";
                  }
                  try {
                      Scope another;
                      wrong += "nothing was thrown\n";
                  } catch (const ForkError &) {
                  }
                  try {
                      const Queue copy = queue;
                      wrong += "nothing was thrown\n";
                  } catch (const ForkError &) {
                  }
              }));
}

TEST_F(Fork, WhileThreadsAreBlocked) {
    auto popping = in_thread([&] { return next_number(queue); });
    ASSERT_TRUE(consumers_wait(queue, 1));
    const pf_handle handle = queue.handle();
    EXPECT_EQ("done", in_child([&](std::string &wrong) {
                  pf_tuple tuple = PF_TUPLE_INIT;
                  FORKED(pf_queue_pop(handle, nullptr, &tuple, nullptr));
                  FORKED(pf_queue_close(handle, PF_PASS_CURRENT, nullptr));
              }));
    push_number(queue, 3);
    EXPECT_EQ(3, popping.get());
}

TEST_F(Fork, ChildrenOfChildren) {
    const pf_handle handle = queue.handle();
    EXPECT_EQ("done", in_child([&](std::string &wrong) {
                  const std::string said = in_child([&](std::string &wrong2) {
                      expect_forked(wrong2, "close", pf_queue_close(handle, PF_PASS_CURRENT, nullptr));
                  });
                  if (said != "done") wrong += said;
              }));
}

}  // namespace
