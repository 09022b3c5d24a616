// pyfeed_program.hpp compiles as the first and only header, in C++17. The templates are instantiated, since the
// compiler checks them only then.
#include <pyfeed_program.hpp>

namespace layers = pyfeed::layers;

template std::array<layers::Var, 2> layers::call<2>(const std::string &, const layers::Vars &,
                                                    const pyfeed::Attributes &, layers::Where);
template std::array<layers::Var, 2> layers::read_file<2>(const layers::Var &, layers::Where);
template std::array<layers::Var, 2> layers::unstaging<2>(const layers::Stage &, layers::Where);
template float *pyfeed::KernelContext::output<float>(size_t, const pyfeed::Shape &) const;
template bool pyfeed::KernelContext::attribute<bool>(const char *) const;
template double pyfeed::KernelContext::attribute<double>(const char *, double) const;
template std::string pyfeed::KernelContext::attribute<std::string>(const char *) const;
template std::vector<uint8_t> pyfeed::KernelContext::attribute<std::vector<uint8_t>>(const char *) const;
template class layers::Block<layers::While>;
template class layers::Block<layers::IfElse>;

void build(const layers::Var &condition);
void build(const layers::Var &condition) {
    const auto nothing = [] {};
    pyfeed::program_guard(pyfeed::Program(), pyfeed::Program(), nothing);
    layers::While(condition, nothing);
    layers::IfElse(condition, nothing);
    layers::IfElse(condition, nothing, nothing);
}

PYFEED_KERNELS(registry) {
    registry.add("nothing", [](pyfeed::KernelContext &) {});
}

// Handles can be copied and moved, objects with one owner can only be moved, and guards of a block can do neither.
static_assert(std::is_nothrow_move_constructible_v<pyfeed::Program> &&
              std::is_copy_constructible_v<pyfeed::Program>);
static_assert(std::is_nothrow_move_constructible_v<pyfeed::Executor> &&
              std::is_copy_constructible_v<pyfeed::Executor>);
static_assert(std::is_nothrow_move_constructible_v<pyfeed::RegisteredKernel> &&
              !std::is_copy_constructible_v<pyfeed::RegisteredKernel>);
static_assert(!std::is_move_constructible_v<pyfeed::ProgramGuard> &&
              !std::is_move_constructible_v<pyfeed::unique_name::Guard>);
static_assert(!std::is_move_constructible_v<layers::While> && !std::is_move_constructible_v<layers::IfElse>);
