/* Scopes and variables. */
#include "guard.h"

pf_status pf_scope_create(pf_handle parent, pf_handle *scope, pf_error *err) {
    ZERO(scope);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(scope, err);
    return pfgo_scope_create(parent, scope, err);
}

pf_status pf_scope_global(pf_handle *scope, pf_error *err) {
    ZERO(scope);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(scope, err);
    return pfgo_scope_global(scope, err);
}

pf_status pf_scope_var(pf_handle scope, const char *name, pf_handle *var, pf_error *err) {
    ZERO(var);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(var, err);
    REQUIRE_POINTER(name, err);
    return pfgo_scope_var(scope, (char *)name, var, err);
}

pf_status pf_scope_find(pf_handle scope, const char *name, pf_handle *var, pf_error *err) {
    ZERO(var);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(var, err);
    REQUIRE_POINTER(name, err);
    return pfgo_scope_find(scope, (char *)name, var, err);
}

pf_status pf_scope_erase(pf_handle scope, const char *name, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(name, err);
    return pfgo_scope_erase(scope, (char *)name, err);
}

pf_status pf_var_kind(pf_handle var, int32_t *kind, pf_error *err) {
    ZERO(kind);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(kind, err);
    return pfgo_var_kind(var, kind, err);
}

pf_status pf_var_get_tensor(pf_handle var, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    return pfgo_var_get_tensor(var, out, err);
}

pf_status pf_var_set_tensor(pf_handle var, const pf_tensor *tensor, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(tensor, err);
    REQUIRE_TENSORS(tensor, 1, 1, err);
    pfi_call call = {0};
    pf_status status = pfgo_var_allocate(var, (pf_tensor *)tensor, &call, err);
    if (status != PFI_COPY) return status;
    pfi_gather(call.dest->data, tensor);
    return pfgo_var_set(var, call.loan, err);
}

pf_status pf_var_get_queue(pf_handle var, pf_handle *queue, pf_error *err) {
    ZERO(queue);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(queue, err);
    return pfgo_var_get_queue(var, queue, err);
}

pf_status pf_var_get_reader(pf_handle var, pf_handle *reader, pf_error *err) {
    ZERO(reader);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(reader, err);
    return pfgo_var_get_reader(var, reader, err);
}

pf_status pf_scope_read(pf_handle scope, const char *reader, const char *const *outs, uint32_t num_outs,
                        const pf_wait *wait, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(reader, err);
    if (num_outs > 0) REQUIRE_POINTER(outs, err);
    for (uint32_t i = 0; i < num_outs; i++) REQUIRE_POINTER(outs[i], err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err,
                 pfgo_scope_read(scope, (char *)reader, (char **)outs, num_outs, &call, err));
    return status;
}
