// Errors with file, line and column, and the hint that follows each. Clang prints them.
#pragma once

#include <clang/Basic/Diagnostic.h>

#include <string>

namespace penstock::compiler {

class Diagnostics {
public:
    explicit Diagnostics(clang::DiagnosticsEngine& engine) : engine_(engine) {}

    void error(clang::SourceLocation at, const std::string& text) {
        say(clang::DiagnosticsEngine::Error, at, text);
    }
    void note(clang::SourceLocation at, const std::string& text) {
        say(clang::DiagnosticsEngine::Note, at, text);
    }
    void warn(clang::SourceLocation at, const std::string& text) {
        say(clang::DiagnosticsEngine::Warning, at, text);
    }
    [[nodiscard]] bool has_error() const { return engine_.hasErrorOccurred(); }

private:
    void say(clang::DiagnosticsEngine::Level level, clang::SourceLocation at,
             const std::string& text) {
        engine_.Report(at, engine_.getDiagnosticIDs()->getCustomDiagID(
                               static_cast<clang::DiagnosticIDs::Level>(level), "%0"))
            << text;
    }

    clang::DiagnosticsEngine& engine_;
};

}  // namespace penstock::compiler
