/* File formats, the search for files, and writers. */
#include "guard.h"

pf_status pf_format_list(char **json, pf_error *err) {
    ZERO(json);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(json, err);
    return pfgo_format_list(json, err);
}

pf_status pf_file_list(const char *const *names, uint32_t num_names, const char *format, const pf_wait *wait,
                       char **json, pf_error *err) {
    ZERO(json);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(json, err);
    if (num_names > 0) REQUIRE_POINTER(names, err);
    for (uint32_t i = 0; i < num_names; i++) REQUIRE_POINTER(names[i], err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err,
                 pfgo_file_list((char **)names, num_names, (char *)format, &call, json, err));
    return status;
}

pf_status pf_format_register(const char *tag, const char *const *suffixes, uint32_t num_suffixes,
                             const char *slots, pf_handle *format, pf_error *err) {
    ZERO(format);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(format, err);
    REQUIRE_POINTER(tag, err);
    if (num_suffixes > 0) REQUIRE_POINTER(suffixes, err);
    for (uint32_t i = 0; i < num_suffixes; i++) REQUIRE_POINTER(suffixes[i], err);
    return pfgo_format_register((char *)tag, (char **)suffixes, num_suffixes, (char *)slots, format, err);
}

pf_status pf_format_wait(pf_handle format, const pf_wait *wait, pf_handle *queue, char **path, char **options,
                         pf_error *err) {
    ZERO(queue);
    ZERO(path);
    ZERO(options);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(queue, err);
    REQUIRE_POINTER(path, err);
    REQUIRE_POINTER(options, err);
    pfi_call call = {0};
    pf_status status;
    RUN_BLOCKING(status, call, wait, err, pfgo_format_wait(format, &call, queue, path, options, err));
    return status;
}

pf_status pf_writer_create(const char *filename, const char *format, const char *attributes,
                           pf_handle *writer, pf_error *err) {
    ZERO(writer);
    CHECK_ALIVE(err);
    REQUIRE_POINTER(writer, err);
    REQUIRE_POINTER(filename, err);
    return pfgo_writer_create((char *)filename, (char *)format, (char *)attributes, writer, err);
}

pf_status pf_writer_set_names(pf_handle writer, const char *const *names, uint32_t num_names, pf_error *err) {
    CHECK_ALIVE(err);
    if (num_names > 0) REQUIRE_POINTER(names, err);
    for (uint32_t i = 0; i < num_names; i++) REQUIRE_POINTER(names[i], err);
    return pfgo_writer_set_names(writer, (char **)names, num_names, err);
}

pf_status pf_writer_write(pf_handle writer, const pf_tensor *tensors, uint32_t num_tensors, pf_error *err) {
    CHECK_ALIVE(err);
    REQUIRE_TENSORS(tensors, num_tensors, 1, err);
    return pfgo_writer_write(writer, (pf_tensor *)tensors, num_tensors, err);
}

pf_status pf_writer_close(pf_handle writer, pf_error *err) {
    CHECK_ALIVE(err);
    return pfgo_writer_close(writer, err);
}
