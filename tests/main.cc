// What every GoogleTest program starts with: the user's configuration is out of reach, so that what
// was calibrated on this machine decides nothing that a test sees, and no test stores anything
// there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
    setenv("XDG_CONFIG_HOME", "/dev/null", 1);
    testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
}
