// Observes the preprocessor.
#include "compiler/directives.h"

#include <clang/Basic/Version.h>
#include <clang/Lex/Lexer.h>
#include <clang/Lex/MacroArgs.h>
#include <clang/Lex/PPCallbacks.h>

namespace penstock::compiler {

namespace {

class Observer : public clang::PPCallbacks {
public:
    Observer(Directives& into, clang::Preprocessor& preprocessor)
        : into_(into), preprocessor_(preprocessor), manager_(preprocessor.getSourceManager()) {}

    void PragmaDirective(clang::SourceLocation at, clang::PragmaIntroducerKind) override {
        // The place is that of the '#'.
        const llvm::StringRef line = rest_of_line(at);
        const size_t word = line.find("pragma");
        if (word == llvm::StringRef::npos) return;
        const llvm::StringRef name = line.substr(word + 6).ltrim(" \t");
        const llvm::StringRef first = name.take_while(
            [](char c) { return (isalnum(static_cast<unsigned char>(c)) != 0) || c == '_'; });
        if (first == "preempt") into_.points.push_back(at);
    }

    void InclusionDirective(clang::SourceLocation, const clang::Token&, llvm::StringRef,
                            bool is_angled, clang::CharSourceRange name,
                            clang::OptionalFileEntryRef file, llvm::StringRef, llvm::StringRef,
                            const clang::Module*
#if CLANG_VERSION_MAJOR >= 19
                            ,
                            bool
#endif
                            ,
                            clang::SrcMgr::CharacteristicKind) override {
        if (is_angled || !file || !is_main(name.getBegin())) return;
        into_.includes.push_back({name.getAsRange(), file->getName().str()});
    }

    void If(clang::SourceLocation at, clang::SourceRange, ConditionValueKind) override { test(at); }
    void Elif(clang::SourceLocation at, clang::SourceRange, ConditionValueKind,
              clang::SourceLocation) override {
        test(at);
    }
    void Ifdef(clang::SourceLocation at, const clang::Token&,
               const clang::MacroDefinition&) override {
        test(at);
    }
    void Ifndef(clang::SourceLocation at, const clang::Token&,
                const clang::MacroDefinition&) override {
        test(at);
    }

    void MacroExpands(const clang::Token& name, const clang::MacroDefinition&,
                      clang::SourceRange range, const clang::MacroArgs*) override {
        if (name.getIdentifierInfo()->getName() == "PENSTOCK_KERNEL" && is_main(range.getBegin()))
            into_.kernels.push_back(range);
    }

private:
    // SourceManager::isInMainFile follows line markers, and the options' own includes have some.
    bool is_main(clang::SourceLocation at) const {
        return manager_.getFileID(at) == manager_.getMainFileID();
    }

    llvm::StringRef rest_of_line(clang::SourceLocation at) const {
        const char* text = manager_.getCharacterData(at);
        return llvm::StringRef(text).take_until([](char c) { return c == '\n'; });
    }

    void test(clang::SourceLocation at) {
        if (!is_main(at)) return;
        const llvm::StringRef line = rest_of_line(at);
        for (const char* macro : {"__NVCC__", "__CUDA_ARCH__", "__CUDACC__",
                                  "PENSTOCK_CPU_LANGUAGE", "__clang__", "PENSTOCK_COMPILER_TOOL"})
            if (line.contains(macro)) into_.conditions.push_back({at, macro});
    }

    Directives& into_;
    clang::Preprocessor& preprocessor_;
    const clang::SourceManager& manager_;
};

}  // namespace

void Directives::observe(clang::Preprocessor& preprocessor) {
    preprocessor.addPPCallbacks(std::make_unique<Observer>(*this, preprocessor));
}

}  // namespace penstock::compiler
