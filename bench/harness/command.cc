#include "bench/harness/command.h"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/harness/report.h"

extern char** environ;

namespace penstock::bench {
namespace {

constexpr size_t kLineMax = 4096;
constexpr int kNoSuchProgram = 127;

}  // namespace

CommandResult run_command(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    arguments.reserve(words.size() + 1);
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    const int out = memfd_create("output", MFD_CLOEXEC);
    if (out < 0) fail("no memory for the output of a command");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    CommandResult result;
    int status = 0;
    bool started = true;
    result.seconds = timed([&] {
        pid_t child = 0;
        started = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(),
                               environ) == 0;
        if (started) waitpid(child, &status, 0);
    });
    posix_spawn_file_actions_destroy(&actions);
    std::string text(kLineMax, '\0');
    const ssize_t size = pread(out, text.data(), text.size(), 0);
    close(out);
    if (!started) {
        result.exit_code = kNoSuchProgram;
        return result;
    }
    if (!WIFEXITED(status)) fail(words[0] + ": ended by a signal");
    result.exit_code = WEXITSTATUS(status);
    text.resize(size > 0 ? static_cast<size_t>(size) : 0);
    result.first_line = text.substr(0, text.find('\n'));
    return result;
}

}  // namespace penstock::bench
