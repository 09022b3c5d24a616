/* The functions of pyfeed.h. Each answers for what must not reach Go: a forked child, a poisoned
 * library, a null pointer, an out-struct that is too small or not zeroed. */
#include <pthread.h>

#include "entry.h"

int pfi_shut;

static void in_child(void) { __atomic_or_fetch(&pfi_shut, PFI_IS_FORKED, __ATOMIC_RELAXED); }
__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(NULL, NULL, in_child); }
void pfi_poison(void) { __atomic_or_fetch(&pfi_shut, PFI_IS_POISONED, __ATOMIC_RELAXED); }

/* ---- What is kept out ---- */

pf_status pfi_refuse(pf_error *err) {
    if (pfi_shut & PFI_IS_FORKED)
        return pfi_fail(err, PF_FORKED, -1,
                        "pyfeed was loaded before this process was forked and does not work in the child: "
                        "start processes with spawn or forkserver");
    return pfi_fail(err, PF_POISONED, -1,
                    "pyfeed stopped after a fault inside it; the first one was printed to standard error");
}

pf_status pfi_null(pf_error *err, const char *name) {
    return pfi_fail(err, PF_INVALID, -1, "%s: expected a pointer, found NULL", name);
}

pf_status pfi_check_tensors(const pf_tensor *tensors, uint32_t num_tensors, int with_data, pf_error *err) {
    if (num_tensors > 0) NOT_NULL(tensors);
    for (uint32_t i = 0; i < num_tensors; i++) {
        const pf_tensor *t = pfi_tensor_at(tensors, i);
        SIZED(t, "tensors", sizeof *t);
        if (t->rank < 0 || t->rank > PF_MAX_RANK)
            return pfi_fail(err, PF_SHAPE, (int32_t)i,
                            "slot %u: rank: expected at most %d dimensions, found %d", i, PF_MAX_RANK,
                            t->rank);
        if (t->rank > 0 && !t->dims)
            return pfi_fail(err, PF_INVALID, (int32_t)i, "slot %u: dims: expected a pointer, found NULL", i);
        if (t->lod_levels > PF_MAX_LOD_LEVELS)
            return pfi_fail(err, PF_SHAPE, (int32_t)i, "slot %u: LoD: expected at most %d levels, found %u",
                            i, PF_MAX_LOD_LEVELS, t->lod_levels);
        if (t->lod_levels > 0 && !t->lod)
            return pfi_fail(err, PF_INVALID, (int32_t)i, "slot %u: lod: expected a pointer, found NULL", i);
        for (uint32_t j = 0; j < t->lod_levels; j++)
            if (!t->lod[j].offsets)
                return pfi_fail(err, PF_INVALID, (int32_t)i,
                                "slot %u: LoD level %u: expected offsets, found NULL", i, j);
        if (!with_data) continue;
        if (t->place.kind == PF_CUDA)
            return pfi_fail(
                err, PF_UNSUPPORTED, (int32_t)i,
                "slot %u: place: expected memory of the host, found CUDAPlace(%d): download it first", i,
                t->place.device);
        if (t->place.kind != PF_CPU && t->place.kind != PF_CUDA_PINNED)
            return pfi_fail(err, PF_UNSUPPORTED, (int32_t)i,
                            "slot %u: place: expected memory of the host, found place %d", i, t->place.kind);
        int empty = 0;
        for (int32_t j = 0; j < t->rank; j++) empty |= t->dims[j] == 0;
        if (!t->data && !empty)
            return pfi_fail(err, PF_INVALID, (int32_t)i, "slot %u: data: expected a pointer, found NULL", i);
    }
    return PF_OK;
}

pf_status pfi_check_slots(const pf_slot_spec *slots, uint32_t num_slots, pf_error *err) {
    if (num_slots > 0) NOT_NULL(slots);
    for (uint32_t i = 0; i < num_slots; i++) {
        const pf_slot_spec *s = pfi_slot_at(slots, i);
        SIZED(s, "slots", sizeof *s);
        if (s->rank < 0 || s->rank > PF_MAX_RANK)
            return pfi_fail(err, PF_SHAPE, (int32_t)i,
                            "slot %u: rank: expected at most %d dimensions, found %d", i, PF_MAX_RANK,
                            s->rank);
        if (s->rank > 0 && !s->dims)
            return pfi_fail(err, PF_INVALID, (int32_t)i, "slot %u: dims: expected a pointer, found NULL", i);
    }
    return PF_OK;
}

/* ---- The library ---- */

pf_status pf_memory(pf_memory_stats *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    NOT_NULL(out);
    SIZED(out, "out", offsetof(pf_memory_stats, pinned_bytes));
    pf_memory_stats all = PF_MEMORY_STATS_INIT;
    pf_status status = pfgo_memory(&all, err);
    if (status) return status;
    all.size = out->size; /* an older header's is smaller */
    memcpy(out, &all, out->size < sizeof all ? out->size : sizeof all);
    return PF_OK;
}

pf_status pf_retain(pf_handle handle, pf_error *err) {
    ENTER(err);
    return pfgo_retain(handle, err);
}

pf_status pf_release(pf_handle handle, pf_error *err) {
    ENTER(err);
    return pfgo_release(handle, err);
}

pf_status pf_cancel_new(pf_handle *token, pf_error *err) {
    ZERO(token);
    ENTER(err);
    NOT_NULL(token);
    return pfgo_cancel_new(token, err);
}

pf_status pf_cancel(pf_handle token, pf_error *err) {
    ENTER(err);
    return pfgo_cancel(token, err);
}

pf_status pf_poll_now(pf_error *err) {
    ENTER(err);
    pfi_poll_sleepers();
    return PF_OK;
}

void pf_tuple_release(pf_tuple *tuple) {
    if (!tuple) return;
    uint64_t loan = tuple->loan;
    tuple->num_slots = 0;
    tuple->slots = NULL;
    tuple->loan = 0;
    if (loan && !__atomic_load_n(&pfi_shut, __ATOMIC_RELAXED)) pfgo_tuple_release(loan);
}

pf_status pf_tuple_share(const pf_tuple *tuple, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    WHOLE(out);
    NOT_NULL(tuple);
    return pfgo_tuple_share(tuple->loan, out, err);
}

/* ---- Scope and variables ---- */

pf_status pf_scope_new(pf_handle parent, pf_handle *scope, pf_error *err) {
    ZERO(scope);
    ENTER(err);
    NOT_NULL(scope);
    return pfgo_scope_new(parent, scope, err);
}

pf_status pf_scope_global(pf_handle *scope, pf_error *err) {
    ZERO(scope);
    ENTER(err);
    NOT_NULL(scope);
    return pfgo_scope_global(scope, err);
}

pf_status pf_scope_var(pf_handle scope, const char *name, pf_handle *var, pf_error *err) {
    ZERO(var);
    ENTER(err);
    NOT_NULL(var);
    NOT_NULL(name);
    return pfgo_scope_var(scope, (char *)name, var, err);
}

pf_status pf_scope_find(pf_handle scope, const char *name, pf_handle *var, pf_error *err) {
    ZERO(var);
    ENTER(err);
    NOT_NULL(var);
    NOT_NULL(name);
    return pfgo_scope_find(scope, (char *)name, var, err);
}

pf_status pf_scope_erase(pf_handle scope, const char *name, pf_error *err) {
    ENTER(err);
    NOT_NULL(name);
    return pfgo_scope_erase(scope, (char *)name, err);
}

pf_status pf_var_kind(pf_handle var, int32_t *kind, pf_error *err) {
    ZERO(kind);
    ENTER(err);
    NOT_NULL(kind);
    return pfgo_var_kind(var, kind, err);
}

pf_status pf_var_get_tensor(pf_handle var, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    WHOLE(out);
    return pfgo_var_get_tensor(var, out, err);
}

pf_status pf_var_set_tensor(pf_handle var, const pf_tensor *tensor, pf_error *err) {
    ENTER(err);
    NOT_NULL(tensor);
    TENSORS(tensor, 1, 1);
    pfi_call call = {0};
    pf_status status = pfgo_var_room(var, (pf_tensor *)tensor, &call, err);
    if (status != PFI_COPY) return status;
    pfi_gather(call.room->data, tensor);
    return pfgo_var_set(var, call.loan, err);
}

/* ---- The queue ---- */

pf_status pf_queue_init_once(pf_handle var, const pf_queue_options *options, pf_handle *queue,
                             pf_error *err) {
    ZERO(queue);
    ENTER(err);
    NOT_NULL(queue);
    NOT_NULL(options);
    SIZED(options, "options", sizeof *options);
    pf_status status = pfi_check_slots(options->slots, options->num_slots, err);
    return status ? status : pfgo_queue_init_once(var, (pf_queue_options *)options, queue, err);
}

pf_status pf_queue_of(pf_handle var, pf_handle *queue, pf_error *err) {
    ZERO(queue);
    ENTER(err);
    NOT_NULL(queue);
    return pfgo_queue_of(var, queue, err);
}

pf_status pf_queue_producer(pf_handle queue, pf_handle *producer, pf_error *err) {
    ZERO(producer);
    ENTER(err);
    NOT_NULL(producer);
    return pfgo_queue_producer(queue, producer, err);
}

pf_status pfi_push(pfi_push_try *try_, pf_handle to, const pf_tensor *tensors, uint32_t num_tensors,
                   uint64_t pass, uint64_t *loan, const pf_wait *wait, pf_error *err) {
    TENSORS(tensors, num_tensors, 1);
    pfi_call call = {.pass = pass};
    for (uint32_t i = 0; i < num_tensors; i++) call.strided |= !pfi_contiguous(pfi_tensor_at(tensors, i));
    pf_status status;
    BLOCKING(try_(to, (pf_tensor *)tensors, num_tensors, &call, err));
    if (status != PFI_COPY) return status;
    /* Large, or strided: copied here, where Go's scheduler does not wait for it. */
    for (uint32_t i = 0; i < num_tensors; i++) pfi_gather(call.room[i].data, pfi_tensor_at(tensors, i));
    *loan = call.loan;
    return PFI_COPY;
}

pf_status pf_queue_push(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                        const pf_wait *wait, pf_error *err) {
    ENTER(err);
    uint64_t loan;
    pf_status status = pfi_push(pfgo_queue_push, queue, tensors, num_tensors, pass, &loan, wait, err);
    return status == PFI_COPY ? pfgo_queue_commit(loan, err) : status;
}

pf_status pf_queue_push_lent(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                             void (*release)(void *context), void *context, const pf_wait *wait,
                             pf_error *err) {
    ENTER(err);
    TENSORS(tensors, num_tensors, 1);
    NOT_NULL(release);
    for (uint32_t i = 0; i < num_tensors; i++)
        if (!pfi_contiguous(pfi_tensor_at(tensors, i)))
            return pfi_fail(err, PF_INVALID, (int32_t)i,
                            "slot %u: expected contiguous memory to be lent, found strides: copy it in, or "
                            "make it contiguous",
                            i);
    pfi_call call = {.pass = pass};
    pf_status status;
    BLOCKING(
        pfgo_queue_push_lent(queue, (pf_tensor *)tensors, num_tensors, (void *)release, context, &call, err));
    return status;
}

pf_status pf_queue_reserve(pf_handle queue, const pf_tensor *tensors, uint32_t num_tensors, uint64_t pass,
                           const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    WHOLE(out);
    TENSORS(tensors, num_tensors, 0);
    pfi_call call = {.pass = pass};
    pf_status status;
    BLOCKING(pfgo_queue_reserve(queue, (pf_tensor *)tensors, num_tensors, &call, out, err));
    return status;
}

pf_status pf_queue_commit(pf_tuple *slot, pf_error *err) {
    ENTER(err);
    NOT_NULL(slot);
    pf_status status = pfgo_queue_commit(slot->loan, err);
    if (status == PF_OK || status == PF_CLOSED) { /* else it is what it was: to be released */
        slot->num_slots = 0;
        slot->slots = NULL;
        slot->loan = 0;
    }
    return status;
}

pf_status pf_queue_pop(pf_handle queue, const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_BUT_LOAN(out);
    ENTER(err);
    WHOLE(out);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_queue_pop(queue, &call, out, err));
    return status;
}

pf_status pf_queue_close(pf_handle queue, uint64_t pass, pf_error *err) {
    ENTER(err);
    return pfgo_queue_close(queue, pass, err);
}

pf_status pf_queue_fail(pf_handle queue, uint64_t pass, const pf_failure *failure, pf_error *err) {
    ENTER(err);
    NOT_NULL(failure);
    SIZED(failure, "failure", sizeof *failure);
    return pfgo_queue_fail(queue, pass, (pf_failure *)failure, err);
}

pf_status pf_queue_reopen(pf_handle queue, uint64_t *pass, uint64_t *dropped, pf_error *err) {
    if (pass) *pass = PF_PASS_NONE;
    ZERO(dropped);
    ENTER(err);
    uint64_t unwanted[2];
    pass = pass ? pass : &unwanted[0];
    dropped = dropped ? dropped : &unwanted[1];
    return pfgo_queue_reopen(queue, pass, dropped, err);
}

pf_status pf_queue_wait_pass(pf_handle queue, uint64_t after, const pf_wait *wait, uint64_t *pass,
                             pf_error *err) {
    if (pass) *pass = PF_PASS_NONE;
    ENTER(err);
    NOT_NULL(pass);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_queue_wait_pass(queue, after, &call, pass, err));
    return status;
}

pf_status pf_queue_shutdown(pf_handle queue, pf_error *err) {
    ENTER(err);
    return pfgo_queue_shutdown(queue, err);
}

pf_status pf_queue_stats(pf_handle queue, pf_queue_info *out, pf_error *err) {
    ZERO_STRUCT(out);
    if (out && out->size >= offsetof(pf_queue_info, closed)) out->pass = PF_PASS_NONE;
    ENTER(err);
    WHOLE(out);
    return pfgo_queue_stats(queue, out, err);
}

pf_status pf_queue_slot(pf_handle queue, uint32_t slot, pf_slot_spec *out, int64_t *dims, pf_error *err) {
    ZERO_STRUCT(out);
    ENTER(err);
    WHOLE(out);
    NOT_NULL(dims);
    return pfgo_queue_slot(queue, slot, out, dims, err);
}

/* ---- Readers ---- */

pf_status pf_create_reader(pf_handle scope, const char *op, const char *out, const char *const *ins,
                           uint32_t num_ins, const char *attributes, pf_error *err) {
    ENTER(err);
    return pf_create_reader_waiting(scope, op, out, ins, num_ins, attributes, NULL, err);
}

pf_status pf_create_reader_waiting(pf_handle scope, const char *op, const char *out, const char *const *ins,
                                   uint32_t num_ins, const char *attributes, const pf_wait *wait,
                                   pf_error *err) {
    ENTER(err);
    NOT_NULL(op);
    NOT_NULL(out);
    if (num_ins > 0) NOT_NULL(ins);
    for (uint32_t i = 0; i < num_ins; i++) NOT_NULL(ins[i]);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_create_reader(scope, (char *)op, (char *)out, (char **)ins, num_ins, (char *)attributes,
                                &call, err));
    return status;
}

pf_status pf_reader_of(pf_handle var, pf_handle *reader, pf_error *err) {
    ZERO(reader);
    ENTER(err);
    NOT_NULL(reader);
    return pfgo_reader_of(var, reader, err);
}

pf_status pf_reader_next(pf_handle reader, const pf_wait *wait, pf_tuple *out, pf_error *err) {
    ZERO_BUT_LOAN(out);
    ENTER(err);
    WHOLE(out);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_reader_next(reader, &call, out, err));
    return status;
}

pf_status pf_reader_has_next(pf_handle reader, const pf_wait *wait, uint8_t *out, pf_error *err) {
    ZERO(out);
    ENTER(err);
    NOT_NULL(out);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_reader_has_next(reader, &call, out, err));
    return status;
}

pf_status pf_reader_reset(pf_handle reader, pf_error *err) {
    ENTER(err);
    return pfgo_reader_reset(reader, err);
}

pf_status pf_read(pf_handle scope, const char *reader, const char *const *outs, uint32_t num_outs,
                  const pf_wait *wait, pf_error *err) {
    ENTER(err);
    NOT_NULL(reader);
    if (num_outs > 0) NOT_NULL(outs);
    for (uint32_t i = 0; i < num_outs; i++) NOT_NULL(outs[i]);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_read(scope, (char *)reader, (char **)outs, num_outs, &call, err));
    return status;
}

pf_status pf_reader_stats(pf_handle reader, char **json, pf_error *err) {
    ZERO(json);
    ENTER(err);
    NOT_NULL(json);
    return pfgo_reader_stats(reader, json, err);
}

/* ---- Workers of a map reader ---- */

pf_status pf_map_workers(pf_handle reader, pf_handle *workers, pf_error *err) {
    ZERO(workers);
    ENTER(err);
    NOT_NULL(workers);
    return pfgo_map_workers(reader, workers, err);
}

pf_status pf_map_take(pf_handle workers, const pf_wait *wait, pf_tuple *out, uint64_t *ticket,
                      pf_error *err) {
    ZERO(ticket);
    ZERO_BUT_LOAN(out);
    ENTER(err);
    WHOLE(out);
    NOT_NULL(ticket);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_map_take(workers, &call, out, ticket, err));
    return status;
}

pf_status pf_map_give(pf_handle workers, uint64_t ticket, const pf_tensor *tensors, uint32_t num_tensors,
                      pf_error *err) {
    ENTER(err);
    TENSORS(tensors, num_tensors, 1);
    pfi_call call = {0};
    pf_status status = pfgo_map_room(workers, ticket, (pf_tensor *)tensors, num_tensors, &call, err);
    if (status != PFI_COPY) return status;
    for (uint32_t i = 0; i < num_tensors; i++) pfi_gather(call.room[i].data, pfi_tensor_at(tensors, i));
    return pfgo_map_give(workers, ticket, call.loan, err);
}

pf_status pf_map_fail(pf_handle workers, uint64_t ticket, const pf_failure *failure, pf_error *err) {
    ENTER(err);
    NOT_NULL(failure);
    SIZED(failure, "failure", sizeof *failure);
    return pfgo_map_fail(workers, ticket, (pf_failure *)failure, err);
}

pf_status pf_map_run(pf_handle workers, pf_map_function function, void *context, uint32_t num_threads,
                     void (*finished)(void *context), pf_error *err) {
    ENTER(err);
    NOT_NULL(function);
    return pfgo_map_run(workers, (void *)function, context, num_threads, (void *)finished, err);
}

/* ---- Formats and writers ---- */

pf_status pf_formats(char **json, pf_error *err) {
    ZERO(json);
    ENTER(err);
    NOT_NULL(json);
    return pfgo_formats(json, err);
}

pf_status pf_list_files(const char *const *names, uint32_t num_names, const char *format, char **json,
                        pf_error *err) {
    ZERO(json);
    ENTER(err);
    return pf_list_files_waiting(names, num_names, format, NULL, json, err);
}

pf_status pf_list_files_waiting(const char *const *names, uint32_t num_names, const char *format,
                                const pf_wait *wait, char **json, pf_error *err) {
    ZERO(json);
    ENTER(err);
    NOT_NULL(json);
    if (num_names > 0) NOT_NULL(names);
    for (uint32_t i = 0; i < num_names; i++) NOT_NULL(names[i]);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_list_files((char **)names, num_names, (char *)format, &call, json, err));
    return status;
}

pf_status pf_register_format(const char *tag, const char *const *suffixes, uint32_t num_suffixes,
                             const char *slots, pf_handle *format, pf_error *err) {
    ZERO(format);
    ENTER(err);
    NOT_NULL(format);
    NOT_NULL(tag);
    if (num_suffixes > 0) NOT_NULL(suffixes);
    for (uint32_t i = 0; i < num_suffixes; i++) NOT_NULL(suffixes[i]);
    return pfgo_register_format((char *)tag, (char **)suffixes, num_suffixes, (char *)slots, format, err);
}

pf_status pf_format_wait(pf_handle format, const pf_wait *wait, pf_handle *queue, char **path, char **options,
                         pf_error *err) {
    ZERO(queue);
    ZERO(path);
    ZERO(options);
    ENTER(err);
    NOT_NULL(queue);
    NOT_NULL(path);
    NOT_NULL(options);
    pfi_call call = {0};
    pf_status status;
    BLOCKING(pfgo_format_wait(format, &call, queue, path, options, err));
    return status;
}

pf_status pf_writer_create(const char *filename, const char *format, const char *attributes,
                           pf_handle *writer, pf_error *err) {
    ZERO(writer);
    ENTER(err);
    NOT_NULL(writer);
    NOT_NULL(filename);
    return pfgo_writer_create((char *)filename, (char *)format, (char *)attributes, writer, err);
}

pf_status pf_writer_write(pf_handle writer, const pf_tensor *tensors, uint32_t num_tensors, pf_error *err) {
    ENTER(err);
    TENSORS(tensors, num_tensors, 1);
    return pfgo_writer_write(writer, (pf_tensor *)tensors, num_tensors, err);
}

pf_status pf_writer_close(pf_handle writer, pf_error *err) {
    ENTER(err);
    return pfgo_writer_close(writer, err);
}
