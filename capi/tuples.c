/* Checks of tensors that are arguments, and tuples on loan to the caller. */
#include "guard.h"

pf_status pfi_check_tensors(const pf_tensor *tensors, uint32_t num_tensors, int with_data, pf_error *err) {
    if (num_tensors > 0) REQUIRE_POINTER(tensors, err);
    for (uint32_t i = 0; i < num_tensors; i++) {
        const pf_tensor *t = pfi_tensor_at(tensors, i);
        REQUIRE_SIZE(t, "tensors", PF_TENSOR_SIZE_V1, err);
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
    if (num_slots > 0) REQUIRE_POINTER(slots, err);
    for (uint32_t i = 0; i < num_slots; i++) {
        const pf_slot_spec *s = pfi_slot_at(slots, i);
        REQUIRE_SIZE(s, "slots", PF_SLOT_SPEC_SIZE_V1, err);
        if (s->rank < 0 || s->rank > PF_MAX_RANK)
            return pfi_fail(err, PF_SHAPE, (int32_t)i,
                            "slot %u: rank: expected at most %d dimensions, found %d", i, PF_MAX_RANK,
                            s->rank);
        if (s->rank > 0 && !s->dims)
            return pfi_fail(err, PF_INVALID, (int32_t)i, "slot %u: dims: expected a pointer, found NULL", i);
    }
    return PF_OK;
}

void pf_tuple_release(pf_tuple *tuple) {
    if (!tuple) return;
    uint64_t loan = tuple->loan;
    tuple->num_slots = 0;
    tuple->slots = NULL;
    tuple->loan = 0;
    if (loan && !__atomic_load_n(&pfi_disabled, __ATOMIC_RELAXED)) pfgo_tuple_release(loan);
}

pf_status pf_tuple_share(const pf_tuple *tuple, pf_tuple *out, pf_error *err) {
    ZERO_STRUCT(out);
    CHECK_ALIVE(err);
    REQUIRE_STRUCT(out, err);
    REQUIRE_POINTER(tuple, err);
    return pfgo_tuple_share(tuple->loan, out, err);
}
