// What GNU grep answers, for tests: the scan must give the same bytes. Only tests include this.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace penstock::scan {

// A folder that goes away with the test.
class TemporaryFolder {
public:
    TemporaryFolder() {
        std::string name = (std::getenv("TMPDIR") != nullptr ? std::getenv("TMPDIR") : "/tmp");
        name += "/penstock-scan-XXXXXX";
        if (mkdtemp(name.data()) == nullptr) std::abort();
        path_ = name;
    }
    ~TemporaryFolder() { (void)std::system(("rm -rf '" + path_ + "'").c_str()); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
    std::string write(const std::string& name, const std::string& bytes) const {
        std::ofstream(file(name), std::ios::binary) << bytes;
        return file(name);
    }

private:
    std::string path_;
};

// Standard output of a shell command; a status above 1 (grep: trouble) fails the test.
inline std::string output_of(const std::string& command) {
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return {};
    std::string output;
    char buffer[1 << 16];
    for (size_t count = 0; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
        output.append(buffer, count);
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1) << command;
    return output;
}

// `LC_ALL=C grep -a -F <flags> -f LIST FILE`.
inline std::string grep_output(const std::string& flags, const std::string& list,
                               const std::string& file) {
    return output_of("LC_ALL=C grep -a -F " + flags + " -f '" + list + "' '" + file + "'");
}

}  // namespace penstock::scan
