// A program that is loaded with a library of another ABI than it was compiled for.
#include <gtest/gtest.h>
#include <pyfeed.hpp>

extern "C" {
uint32_t pf_abi_version(void) { return 99; }
const char *pf_version(void) { return "98.0.0"; }
}

TEST(AbiMismatch, NamesBothNumbers) {
    try {
        pyfeed::detail::check_abi();
        FAIL() << "nothing was thrown";
    } catch (const pyfeed::UnsupportedError &e) {
        EXPECT_STREQ("this program was compiled for pyfeed ABI 1 (release " PF_VERSION
                     "), but the library that is loaded has ABI 99 (release 98.0.0)",
                     e.what());
        EXPECT_EQ(PF_UNSUPPORTED, e.status());
        EXPECT_EQ(-1, e.slot());
    }
}
