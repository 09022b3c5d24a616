// pyfeed.hpp compiles as the first and only header, in C++17. The templates are instantiated, since the compiler checks
// them only then.
#include <pyfeed.hpp>

#include <cstddef>

template const float *pyfeed::TensorView::data<float>() const;
template float *pyfeed::TensorView::mutable_data<float>() const;
template pyfeed::Span<const double> pyfeed::TensorView::values<double>() const;
template pyfeed::dlpack::DLManagedTensor *pyfeed::to_dlpack(std::shared_ptr<const pyfeed::Tuple>, size_t);
template pyfeed::dlpack::DLManagedTensorVersioned *pyfeed::to_dlpack(pyfeed::Tuple &&, size_t);
template pyfeed::DLPackTensor pyfeed::from_dlpack(pyfeed::dlpack::DLManagedTensor *);
template pyfeed::DLPackTensor pyfeed::from_dlpack(pyfeed::dlpack::DLManagedTensorVersioned *);
template void pyfeed::detail::QueueBase::push_lent(const pyfeed::Tensors &, std::shared_ptr<int>,
                                                   const pyfeed::Wait &, uint64_t) const;
template class pyfeed::detail::TupleRange<pyfeed::Reader>;
template class pyfeed::detail::TupleRange<pyfeed::Queue>;

// The layout of DLPack's C structures, which must be the same in all libraries that exchange tensors.
using namespace pyfeed::dlpack;
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 && offsetof(DLTensor, ndim) == 16);
static_assert(offsetof(DLTensor, dtype) == 20 && offsetof(DLTensor, shape) == 24);
static_assert(offsetof(DLTensor, strides) == 32 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, manager_ctx) == 48);
static_assert(offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, manager_ctx) == 8);
static_assert(offsetof(DLManagedTensorVersioned, deleter) == 16);
static_assert(offsetof(DLManagedTensorVersioned, flags) == 24);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

// Moves must not throw: a vector can then move its elements when it grows.
static_assert(std::is_nothrow_move_constructible_v<pyfeed::Tuple> &&
              !std::is_copy_constructible_v<pyfeed::Tuple>);
static_assert(std::is_nothrow_move_constructible_v<pyfeed::Reservation> &&
              !std::is_copy_constructible_v<pyfeed::Reservation>);
static_assert(std::is_nothrow_move_constructible_v<pyfeed::Queue> &&
              std::is_copy_constructible_v<pyfeed::Queue>);
static_assert(std::is_nothrow_move_constructible_v<pyfeed::Writer> &&
              !std::is_copy_constructible_v<pyfeed::Writer>);
static_assert(std::is_nothrow_move_constructible_v<pyfeed::RegisteredFormat> &&
              !std::is_copy_constructible_v<pyfeed::RegisteredFormat>);
