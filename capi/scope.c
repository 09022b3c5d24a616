/* Scopes and variables. */
#include "guard.h"

pf_status pf_scope_new(pf_handle parent, pf_handle *scope, pf_error *err) {
    ZERO(scope);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(scope, err);
    return pfgo_scope_new(parent, scope, err);
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
