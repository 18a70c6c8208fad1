// Translates options: what matters to the meaning of the text is passed on, the rest is dropped.
#include "compiler/command_line.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace penstock::compiler {

const char* const kUsage =
    "usage: penstock-preempt kernel.cu -o out.cu [--report] [--hoist] [--json] [options of g++ or "
    "nvcc]\n"
    "  -o FILE        where the transformed source goes; not the input\n"
    "  --report       print what each point saves\n"
    "  --json         print the report as JSON\n"
    "  --hoist        move points out of divergent flow\n"
    "  --depfile FILE write the files that were read, as make rules\n"
    "  -I -isystem -iquote -include -D -U -std=  as for the compiler\n"
    "example: penstock-preempt multiply.cu -o build/multiply.cu --report\n";

namespace {

bool begins(std::string_view word, std::string_view with) {
    return word.substr(0, with.size()) == with;
}

// Options with a value of their own word, of no meaning here.
constexpr std::array kDroppedWithValue = {"-arch",
                                          "--gpu-architecture",
                                          "-gencode",
                                          "--generate-code",
                                          "-code",
                                          "--gpu-code",
                                          "-ccbin",
                                          "--compiler-bindir",
                                          "-Xptxas",
                                          "--ptxas-options",
                                          "-Xlinker",
                                          "--linker-options",
                                          "-Xnvlink",
                                          "-Xfatbin",
                                          "-maxrregcount",
                                          "--maxrregcount",
                                          "-L",
                                          "-l",
                                          "-threads",
                                          "--threads",
                                          "-t",
                                          "-MF",
                                          "-MT",
                                          "-MQ",
                                          "-diag-suppress",
                                          "--diag-suppress",
                                          "-Werror",
                                          "-cudart",
                                          "--cudart",
                                          "-odir",
                                          "--output-directory"};
// Options without a value, or with one behind `=`.
constexpr std::array kDropped = {"-c",
                                 "-O",
                                 "-g",
                                 "-G",
                                 "-w",
                                 "-W",
                                 "-f",
                                 "-m",
                                 "-MD",
                                 "-MMD",
                                 "-M",
                                 "-L",
                                 "-l",
                                 "-v",
                                 "-pipe",
                                 "-arch=",
                                 "--gpu-architecture=",
                                 "-gencode=",
                                 "--generate-code=",
                                 "-code=",
                                 "--gpu-code=",
                                 "--expt-relaxed-constexpr",
                                 "-expt-relaxed-constexpr",
                                 "--expt-extended-lambda",
                                 "--extended-lambda",
                                 "-extended-lambda",
                                 "-expt-extended-lambda",
                                 "--use_fast_math",
                                 "-use_fast_math",
                                 "-lineinfo",
                                 "--generate-line-info",
                                 "-rdc=",
                                 "--relocatable-device-code=",
                                 "-dc",
                                 "-dlink",
                                 "-maxrregcount=",
                                 "--maxrregcount=",
                                 "-ccbin=",
                                 "--compiler-bindir=",
                                 "--ptxas-options=",
                                 "--threads=",
                                 "-res-usage",
                                 "--resource-usage",
                                 "-keep",
                                 "--keep",
                                 "-ftz=",
                                 "-prec-div=",
                                 "-prec-sqrt=",
                                 "-fmad=",
                                 "--ftz=",
                                 "--prec-div=",
                                 "--prec-sqrt=",
                                 "--fmad=",
                                 "-diag-suppress=",
                                 "--diag-suppress=",
                                 "--default-stream",
                                 "-cudart=",
                                 "--cudart=",
                                 "--display-error-number",
                                 "--no-display-error-number",
                                 "-forward-unknown-to-host-compiler",
                                 "--forward-unknown-to-host-compiler",
                                 "-split-compile",
                                 "--split-compile",
                                 "-pg",
                                 "-p"};
constexpr std::array kPassedWithValue = {"-I",       "-isystem", "-iquote", "-idirafter",
                                         "-include", "-D",       "-U",      "-imacros"};
// Options that change what is compiled in a way that the tool cannot follow.
constexpr std::array kRefused = {
    "-x",      "--x",      "-E",    "-ptx", "--ptx", "-cubin",         "--cubin",
    "-fatbin", "--fatbin", "-cuda", "-run", "--run", "--options-file", "-optf",
    "-link",   "-lib",     "--lib", "-M=",  "-dw",   "-ptx=",          "-cubin="};

template <class Names>
bool is_one_of(const std::string& word, const Names& names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return word == name; });
}
template <class Names>
bool begins_with_one_of(const std::string& word, const Names& names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* name) { return begins(word, name); });
}

class Parser {
public:
    explicit Parser(std::vector<std::string> words) : words_(std::move(words)) {}

    CommandLine parse() {
        for (at_ = 0; at_ < words_.size() && out_.error.empty(); ++at_) word(words_[at_]);
        if (out_.error.empty() && !out_.help && out_.input.empty())
            out_.error = "no input: name a .cu file";
        if (!has_standard_) out_.arguments.insert(out_.arguments.begin(), "-std=c++20");
        return out_;
    }

private:
    std::string value(const std::string& option) {
        if (at_ + 1 < words_.size()) return words_[++at_];
        out_.error = option + " needs a value";
        return "";
    }

    bool own(const std::string& word) {
        if (word == "--report") return out_.report = true;
        if (word == "--hoist") return out_.hoist = true;
        if (word == "--json") return out_.json = true;
        if (word == "--help" || word == "-h") return out_.help = true;
        if (word == "-o" || word == "--output-file") {
            out_.output = value(word);
        } else if (begins(word, "-o") && word.size() > 2 && !begins(word, "-odir") &&
                   !begins(word, "-optf")) {
            out_.output = word.substr(2);
        } else if (word == "--depfile") {
            out_.depfile = value(word);
        } else {
            return false;
        }
        return true;
    }

    // -Xcompiler -Wall,-DX: the parts are options of g++.
    void host_options(const std::string& list) {
        size_t from = 0;
        while (from <= list.size()) {
            const size_t comma = std::min(list.find(',', from), list.size());
            const std::string one = list.substr(from, comma - from);
            if (begins(one, "-D") || begins(one, "-U") || begins(one, "-I"))
                out_.arguments.push_back(one);
            from = comma + 1;
        }
    }

    void standard(const std::string& name) {
        has_standard_ = true;
        // Penstock's headers are C++20.
        const bool old = name.find("11") != std::string::npos ||
                         name.find("14") != std::string::npos ||
                         name.find("17") != std::string::npos;
        if (old)
            out_.error = "-std=" + name + ": Penstock's headers are C++20; use -std=c++20";
        else
            out_.arguments.push_back("-std=" + name);
    }

    void word(const std::string& word) {
        if (own(word)) return;
        if (word.empty() || word[0] != '-') {
            if (!out_.input.empty())
                out_.error = "two inputs, " + out_.input + " and " + word + ": name one";
            out_.input = word;
        } else if (is_one_of(word, kRefused)) {
            out_.error = word + ": not an option of penstock preempt; leave it out";
        } else if (word == "-Xcompiler" || word == "--compiler-options") {
            host_options(value(word));
        } else if (begins(word, "-Xcompiler=") || begins(word, "--compiler-options=")) {
            host_options(word.substr(word.find('=') + 1));
        } else if (word == "-std" || word == "--std") {
            standard(value(word));
        } else if (begins(word, "-std=") || begins(word, "--std=")) {
            standard(word.substr(word.find('=') + 1));
        } else if (word == "--include-path" || word == "--define-macro" ||
                   word == "--pre-include" || word == "--system-include") {
            const std::string name = word == "--include-path"   ? "-I"
                                     : word == "--define-macro" ? "-D"
                                     : word == "--pre-include"  ? "-include"
                                                                : "-isystem";
            out_.arguments.insert(out_.arguments.end(), {name, value(word)});
        } else if (is_one_of(word, kPassedWithValue)) {
            const std::string given = value(word);
            out_.arguments.insert(out_.arguments.end(), {word, given});
        } else if (begins(word, "-I") || begins(word, "-D") || begins(word, "-U") ||
                   begins(word, "-isystem") || begins(word, "-iquote")) {
            out_.arguments.push_back(word);
        } else if (word == "-Werror" && at_ + 1 < words_.size() &&
                   words_[at_ + 1].find('-') != std::string::npos && words_[at_ + 1][0] != '-') {
            ++at_;  // nvcc's -Werror all-warnings
        } else if (word == "-Werror") {
        } else if (is_one_of(word, kDroppedWithValue)) {
            static_cast<void>(value(word));
        } else if (!begins_with_one_of(word, kDropped)) {
            out_.error = word + ": not an option that penstock preempt knows; leave it out";
        }
    }

    std::vector<std::string> words_;
    size_t at_ = 0;
    bool has_standard_ = false;
    CommandLine out_;
};

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& words) {
    return Parser(words).parse();
}

}  // namespace penstock::compiler
