/* The structures of DLPack, https://dmlc.github.io/dlpack/latest/c_api.html */
#ifndef PYFEED_DLPACK_H
#define PYFEED_DLPACK_H

#include <stdint.h>

typedef struct {
    int32_t type, id;
} dl_device;
enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3 };
enum { DL_INT = 0, DL_UINT = 1, DL_FLOAT = 2, DL_BFLOAT = 4, DL_COMPLEX = 5, DL_BOOL = 6 };

typedef struct {
    void *data;
    dl_device device;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides; /* in elements */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *);
} dl_managed;

typedef struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *);
    uint64_t flags;
    dl_tensor tensor;
} dl_versioned;
enum { DL_READ_ONLY = 1 }; /* dl_versioned.flags */

#endif
