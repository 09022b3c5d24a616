/* Programs. */
#include "guard.h"

pf_status pf_program_create(pf_handle *program, pf_error *err) {
    ZERO(program);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(program, err);
    return pfgo_program_create(program, err);
}

pf_status pf_program_clone(pf_handle program, pf_handle *clone, pf_error *err) {
    ZERO(clone);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(clone, err);
    return pfgo_program_clone(program, clone, err);
}

pf_status pf_program_add_block(pf_handle program, uint32_t parent, uint32_t *block, pf_error *err) {
    ZERO(block);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(block, err);
    return pfgo_program_add_block(program, parent, block, err);
}

pf_status pf_program_add_variable(pf_handle program, uint32_t block, const char *variable, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(variable, err);
    return pfgo_program_add_variable(program, block, (char *)variable, err);
}

pf_status pf_program_add_op(pf_handle program, uint32_t block, const char *op, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(op, err);
    return pfgo_program_add_op(program, block, (char *)op, err);
}

pf_status pf_program_get_variable(pf_handle program, uint32_t block, const char *name, char **variable,
                                  pf_error *err) {
    ZERO(variable);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(name, err);
    REQUIRE_POINTER(variable, err);
    return pfgo_program_get_variable(program, block, (char *)name, variable, err);
}

pf_status pf_program_serialize(pf_handle program, const char *form, char **data, uint64_t *size,
                               pf_error *err) {
    ZERO(data);
    ZERO(size);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(form, err);
    REQUIRE_POINTER(data, err);
    REQUIRE_POINTER(size, err);
    return pfgo_program_serialize(program, (char *)form, data, size, err);
}

pf_status pf_program_parse(const char *data, uint64_t size, pf_handle *program, pf_error *err) {
    ZERO(program);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(program, err);
    if (size > 0) REQUIRE_POINTER(data, err);
    return pfgo_program_parse((char *)data, size, program, err);
}

pf_status pf_program_save(pf_handle program, const char *path, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_POINTER(path, err);
    return pfgo_program_save(program, (char *)path, err);
}

pf_status pf_program_load(const char *path, pf_handle *program, pf_error *err) {
    ZERO(program);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(path, err);
    REQUIRE_POINTER(program, err);
    return pfgo_program_load((char *)path, program, err);
}
