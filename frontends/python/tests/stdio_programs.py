"""C programs that read by stdio, for test_cache_streams.py. They print what each call returned."""

from __future__ import annotations

# Random calls on four streams of the files of a folder, SEEDS times. A step that depends on where
# libc has left the descriptor comes after fflush(), which POSIX says sets it.
RANDOM_CALLS = r"""
#include <locale.h>
#include <stdio_ext.h>
#include <wchar.h>
static unsigned long state;
static unsigned roll(unsigned n) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (unsigned)(state >> 33) % n;
}
static char data[300000], buffers[4][8192];
static const char* names[] = {"bin", "text", "empty", "page"};
static struct { FILE* f; int wide, plain; } s[4];
static unsigned long hash(const void* from, size_t size) {
    unsigned long h = 14695981039346656037ul;
    for (size_t i = 0; i < size; ++i) h = (h ^ ((const unsigned char*)from)[i]) * 1099511628211ul;
    return h;
}
static void say(const char* what, long result, unsigned long more) {
    printf("%s %ld %lx\n", what, result, more);
}
static long tried(long result) { return result < 0 ? -errno : result; }
static void path_of(char* path, const char* folder) {
    sprintf(path, "%s/%s", folder, names[roll(8) < 4 ? roll(2) : roll(4)]);
}
static void open_one(int i, const char* folder) {
    static const char* modes[] = {"r", "rb", "re", "rbe", "r", "rc", "r,ccs=UTF-8", "rc"};
    char path[4096];
    path_of(path, folder);
    const unsigned how = roll(10);
    const char* mode = modes[roll(how == 9 ? 8 : 5)];
    FILE* f = how < 6 ? fopen(path, mode) : how < 8 ? fdopen(open(path, O_RDONLY), mode)
                                                    : fopen64(path, mode);
    CHECK(f != NULL);
    s[i].f = f;
    s[i].plain = 1;
    s[i].wide = strstr(mode, "ccs") || roll(7) == 0;
    const unsigned buffer = roll(16);
    if (buffer == 0) say("setvbuf", setvbuf(f, buffers[i], _IOFBF, sizeof buffers[i]), 0);
    if (buffer == 1) say("setvbuf", setvbuf(f, buffers[i], _IOFBF, 100), 0);
    if (buffer == 2) say("setvbuf", setvbuf(f, NULL, _IOFBF, 1000), 0);
    if (buffer == 3) say("setvbuf", setvbuf(f, NULL, _IOLBF, 0), 0);
    if (buffer == 4) say("setvbuf", setvbuf(f, NULL, _IONBF, 0), 0);
    if (buffer == 5) setbuf(f, roll(2) ? NULL : buffers[i]);
    // Without it libc's own fseek() is wrong for characters that were pushed back after a seek.
    if (!s[i].wide) say("fwide", fwide(f, -1), 0);
    say("open", fileno(f), fcntl(fileno(f), F_GETFD));
}
static void seek_one(FILE* f) {
    const int whence = roll(3);
    long at = roll(250000);
    if (whence == SEEK_CUR) at = (long)roll(20000) - 10000;
    if (whence == SEEK_END) at = -(long)roll(250000) + 10;
    if (roll(30) == 0) at = 1l << (30 + roll(34));
    errno = 0;
    const long done = roll(2) ? fseek(f, at, whence) : fseeko(f, at, whence);
    say("fseek", done, done < 0 ? errno : 0);
    say("ftell", tried(ftell(f)), 0);
}
static void wide_call(FILE* f) {
    wchar_t text[500] = L"";
    int number = 0;
    const unsigned op = roll(9);
    if (op < 2) say("fgetwc", fgetwc(f), 0);
    if (op == 2 && fwide(f, 0) > 0) say("getwc_unlocked", getwc_unlocked(f), 0);
    if (op == 3) {
        const int room = 2 + roll(400);
        say("fgetws", fgetws(text, room, f) ? wcslen(text) : -1, 0);
        say("fgetws", text[0], 0);
    }
    if (op == 4) say("ungetwc", ungetwc(L'a' + roll(20), f), 0);
    if (op == 5) {
        const int found = fwscanf(f, L"%d %100ls", &number, text);
        say("fwscanf", found, number + text[0]);
    }
    if (op == 6) say("fwide", fwide(f, (int)roll(3) - 1), 0);
    if (op == 7) say("ftell", ftell(f), 0);
    if (op == 8) roll(2) ? rewind(f) : clearerr(f);
    say("ends", feof(f), ferror(f));
}
// Sets the descriptor's position. glibc before 2.41 is wrong where characters were pushed back.
static long settle(int i) {
    if (!s[i].plain) fseek(s[i].f, 0, SEEK_CUR);
    return tried(fflush(s[i].f));
}
static void beside(int one, const char* folder) {
    FILE* f = s[one].f;
    struct stat status;
    char few[64] = "", command[100];
    const int fd = fileno(f);
    const unsigned op = roll(8);
    const long flushed = settle(one);
    say("fflush", flushed, lseek(fd, 0, SEEK_CUR));
    if (op == 0) {
        const long got = pread(fd, data, 5000, roll(200000));
        say("pread", got, hash(data, got));
    }
    if (op == 1) {
        const long got = read(fd, few, 50);
        say("read", got, hash(few, 50));
    }
    if (op == 2) say("lseek", lseek(fd, roll(200000), SEEK_SET), 0);
    if (op == 3) {
        const int failed = fstat(fd, &status);
        say("fstat", failed, status.st_size);
    }
    if (op == 4) {
        const int other = dup(fd);
        long got = read(other, few, 50);
        say("dup", got, hash(few, 50));
        got = fread(data, 1, 20, f);
        say("fread", got, hash(data, got));
        close(other);
    }
    if (op == 5) {
        void* mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        fstat(fd, &status);
        if (status.st_size > 4095) say("mmap", 0, hash(mapped, 4096));
        munmap(mapped, 4096);
    }
    if (op == 6 && roll(3) == 0) {
        for (int i = 0; i < 4; ++i)
            if (s[i].f != NULL) settle(i);
        fflush(stdout);
        if (fork() == 0) {
            freopen("/dev/null", "w", stdout);
            fread(data, 1, roll(10000), f);
            exit(0);  // sets the positions, which are the parent's too
        }
        wait(NULL);
        say("fork", lseek(fd, 0, SEEK_CUR), 0);
    }
    if (op == 7 && roll(10) == 0) {
        sprintf(command, "head -c 30 <&%d", fd);
        fcntl(fd, F_SETFD, 0);
        FILE* pipe = popen(command, "r");
        const long got = fread(few, 1, 64, pipe);
        say("popen", got, hash(few, 64));
        pclose(pipe);
    }
}
static void byte_call(int i, const char* folder) {
    static const size_t sizes[] = {1, 10, 100, 4095, 4096, 8192, 50000, 250000};
    FILE* f = s[i].f;
    char few[64] = "", *line = NULL, path[4096];
    int number = 0;
    size_t room = 0, size = sizes[roll(8)];
    fpos_t at;
    const unsigned op = roll(24);
    if (op < 4) {
        const size_t unit = roll(3) ? 1 : 7;
        const size_t got = roll(4) ? fread(data, unit, size / unit, f)
                                   : fread_unlocked(data, unit, size / unit, f);
        say("fread", got, hash(data, got * unit));
    } else if (op == 4) {
        say("fgets", fgets(data, 1 + size, f) ? strlen(data) : 0, 0);
    } else if (op == 5) {
        unsigned long sum = 0;
        for (size_t n = roll(3000); n > 0; --n) sum = sum * 31 + getc_unlocked(f);
        say("getc_unlocked", 0, sum);
    } else if (op == 6) {
        flockfile(f);
        const int first = getc(f);
        say("getc", first, fgetc(f));
        funlockfile(f);
    } else if (op == 7) {
        int count = 1 + roll(3), back = 0;  // not to before the file: that is not defined
        for (int n = 0; n < count; ++n) back += getc(f) != EOF;
        while (back-- > 0) say("ungetc", ungetc('a' + roll(20), f), 0);
        say("ftell", ftell(f), 0);
        s[i].plain = 0;
    } else if (op == 8) {
        long got = getline(&line, &room, f);
        say("getline", got, got > 0 ? hash(line, got) : 0);
        got = getdelim(&line, &room, 'e', f);
        say("getdelim", got, got > 0 ? hash(line, got) : 0);
        free(line);
    } else if (op == 9) {
        const int found = fscanf(f, "%d %50s", &number, few);
        say("fscanf", found, number + hash(few, strlen(few)));
    } else if (op < 13) {
        seek_one(f);
        s[i].plain = 0;
    } else if (op == 13) {
        say("ftell", ftello(f), 0);
    } else if (op == 14) {
        const int known = fgetpos(f, &at);  // not behind ungetc() at the beginning
        fread(data, 1, size, f);
        say("fsetpos", known == 0 ? fsetpos(f, &at) : -1, 0);
        say("getc", getc(f), 0);
        s[i].plain = 0;
    } else if (op == 15) {
        roll(2) ? rewind(f) : clearerr(f);
        s[i].plain = 0;
    } else if (op < 18) {
        beside(i, folder);
    } else if (op == 18) {
        say("state", __freading(f) * 8 + __fwriting(f) * 4 + __freadable(f) * 2 + __fwritable(f),
            __flbf(f) + __fpending(f));
        say("fwide", fwide(f, 0) > 0, 0);
    } else if (op == 19 && roll(3) == 0) {
        errno = 0;
        const int put = fputc('a', f);
        say("fputc", put, errno);
    } else if (op == 20 && s[i].plain) {
        __fpurge(f);
        say("purged", lseek(fileno(f), 0, SEEK_CUR), 0);
    } else if (op == 21 && roll(4) == 0) {
        path_of(path, folder);
        FILE* g = roll(2) ? freopen(path, "r", f) : freopen(roll(2) ? path : NULL, "rb", f);
        CHECK(g == f);
        s[i].wide = roll(4) == 0;
        s[i].plain = 1;
        if (!s[i].wide) fwide(f, -1);
    } else if (op == 22) {
        errno = 0;
        const int closes = s[i].plain && roll(4) == 0 ? close(fileno(f)) : 1;
        if (closes == 0) {
            const int first = getc(f);
            say("closed", first, fread(data, 1, 50000, f));
            say("ends", feof(f), ferror(f));
        }
        errno = 0;
        const int failed = fclose(f);
        say("fclose", failed, errno);
        s[i].f = NULL;
    }
    if (s[i].f != NULL) say("ends", feof(f), ferror(f));
}
int main(int argc, char** argv) {
    CHECK(setlocale(LC_ALL, "C.UTF-8") != NULL);
    for (int seed = atoi(argv[2]), end = seed + atoi(argv[3]); seed < end; ++seed) {
        state = seed;
        for (int step = 0; step < 300; ++step) {
            const int i = roll(4);
            if (s[i].f == NULL) open_one(i, argv[1]);
            printf("%d %d %d: ", seed, step, i);
            s[i].wide ? wide_call(s[i].f) : byte_call(i, argv[1]);
            if (s[i].wide && roll(20) == 0) {
                say("fclose", fclose(s[i].f), 0);
                s[i].f = NULL;
            }
        }
        for (int i = 0; i < 4; ++i) {
            if (s[i].f != NULL) say("fclose", fclose(s[i].f), 0);
            s[i].f = NULL;
        }
    }
    return 0;
}
"""

# Does what it is told by lines: "seek OFFSET", "read SIZE", "line"; prints how much
# it got, where it is, and the bytes.
OBEDIENT = r"""
int main(int argc, char** argv) {
    static char data[1 << 20], told[100];
    FILE* f = fopen(argv[1], "r");
    CHECK(f != NULL);
    while (fgets(told, sizeof told, stdin)) {
        const long number = atol(told + 5);
        long got = 0;
        if (*told == 's') got = fseek(f, number, SEEK_SET);
        if (*told == 'l') got = fgets(data, number, f) ? strlen(data) : 0;
        if (*told == 'r') got = fread(data, 1, number, f);
        printf("%ld %ld\n", got, ftell(f));
        fwrite(data, 1, got, stdout);
        fflush(stdout);
    }
    return fclose(f);
}
"""

# Leaves a stream in the middle, for another program that goes on with its descriptor.
HANDS_OVER = r"""
#include <sys/wait.h>
int main(int argc, char** argv) {
    char line[100], command[100];
    const int how = atoi(argv[2]);
    if (how == 3) close(0);
    FILE* f = how == 4 ? fdopen(0, "r") : how == 5 ? stdin : fopen(argv[1], "r");
    const int fd = fileno(f);
    CHECK(how != 3 || fd == 0);
    for (int i = 0; i < 3; ++i) fputs(fgets(line, sizeof line, f), stdout);
    if (how >= 4) exit(0);
    fflush(f);
    fflush(stdout);
    sprintf(command, "head -c 5 <&%d; echo; exec cat <&%d", fd, fd);
    fcntl(fd, F_SETFD, 0);
    if (how == 0) execlp("sh", "sh", "-c", command, NULL);
    if (how == 1) system(command);
    if (how == 2) {
        dup2(fd, 0);
        fclose(f);
        system("cat");
    }
    if (how == 3) system("cat");
    return 0;
}
"""

# Opens and closes many streams in each way. Fails if memory or descriptors are lost.
LEAKS = r"""
#include <malloc.h>
#include <wchar.h>
int main(int argc, char** argv) {
    char few[10], own[8192];
    size_t used = 0;
    for (int i = 0; i < 3000; ++i) {
        if (i == 100) used = mallinfo2().uordblks;
        FILE* f = i % 2 ? fopen(argv[1], "r") : fdopen(open(argv[1], O_RDONLY), "r");
        CHECK(f != NULL && fileno(f) == 3);
        if (i % 7 == 0) setvbuf(f, NULL, _IONBF, 0);
        if (i % 7 == 1) fgetwc(f);
        if (i % 7 == 2) CHECK(freopen(argv[1], "r", f) == f);
        if (i % 7 == 3) setbuf(f, own);
        if (i % 7 == 4) ungetc(fgetc(f) + 1, f);
        if (i % 7 == 5) close(fileno(f));
        fread(few, 1, sizeof few, f);
        CHECK((fclose(f) == 0) == (i % 7 != 5));
    }
    const long more = mallinfo2().uordblks - used;
    printf("%s\n", labs(more) < 4096 ? "none" : "some");
    return 0;
}
"""

# Eight threads take the bytes of one stream, which is opened before the
# first thread, and then again.
THREADS = r"""
static FILE* f;
static void* sum_up(void* sum) {
    char few[7];
    for (int c, i = 0; (c = getc(f)) != EOF; ++i) {
        *(long*)sum += c;
        for (int n = i % 100 ? 0 : fread(few, 1, 7, f); n > 0; --n)
            *(long*)sum += (unsigned char)few[n - 1];
    }
    return NULL;
}
int main(int argc, char** argv) {
    pthread_t threads[8];
    for (int round = 0; round < 2; ++round) {
        long sums[8] = {0}, sum = 0;
        f = fopen(argv[1], "r");
        for (int i = 0; i < 8; ++i) pthread_create(&threads[i], NULL, sum_up, &sums[i]);
        for (int i = 0; i < 8; ++i) pthread_join(threads[i], NULL), sum += sums[i];
        printf("%ld %d\n", sum, fclose(f));
    }
    return 0;
}
"""

# Streams that must not be served, and files that are none.
OTHERS = r"""
int main(int argc, char** argv) {
    char few[100];
    FILE* f;
    if (chdir(argv[1]) != 0) return 1;
    const char* modes[] = {"r+", "a+", "rm", "r,ccs=UTF-8", "w+"};
    for (int i = 0; i < 5; ++i) {
        CHECK((f = fopen("text", modes[i])) != NULL);
        rewind(f);
        for (int n = 0; n < 3; ++n) printf("%s %d\n", modes[i], i == 3 ? fgetwc(f) : fgetc(f));
        if (i != 2 && i != 3) {
            fseek(f, 0, SEEK_END);
            fputs("more\n", f);
            rewind(f);
            printf("%s", fgets(few, sizeof few, f));
        }
        printf("%d\n", fclose(f));
    }
    f = fopen(".", "r");
    printf("%d ", fgetc(f));
    printf("%d %d %d\n", errno, feof(f), ferror(f));
    fclose(f);
    for (int i = 0; i < 4; ++i) {
        const char* paths[] = {"missing", "text/a", "text", NULL};
        const char* strange[] = {"r", "r", "q", "r"};
        f = i < 3 ? fopen(paths[i], strange[i]) : fdopen(77, "r");
        printf("%d %d\n", f == NULL, errno);
    }
    mkfifo("pipe", 0600);
    if (fork() == 0) {
        f = fopen("pipe", "w");
        fputs("by a pipe", f);
        fclose(f);
        _exit(0);
    }
    f = fopen("pipe", "r");
    printf("%s %ld %d\n", fgets(few, sizeof few, f), ftell(f), errno);
    printf("%d\n", fclose(f));
    f = fdopen(open("bin", O_WRONLY), "r");
    printf("%d %d\n", f == NULL, errno);
    f = fopen("bin", "r");
    printf("%d\n", write(fileno(f), "a", 1));
    unlink("bin");
    printf("%d", fgetc(f));
    *few = 0;
    fseek(f, -1, SEEK_END);
    printf(" %d %d\n", fgetc(f), fgetc(f));
    fcloseall();
    return 0;
}
"""

# Cancels threads that read, from the cache and not. Fails if one has kept the lock of its stream.
CANCELS = r"""
#include <stdatomic.h>
static FILE* f;
static atomic_int reads;
static void* reader(void* none) {
    static char data[50000];
    for (;; pthread_testcancel()) {
        if (fread(data, 1, sizeof data, f) < sizeof data) rewind(f);
        getc(f);
        ++reads;
    }
}
int main(int argc, char** argv) {
    for (int i = 0; i < 100; ++i) {
        pthread_t thread;
        CHECK((f = fopen(argv[1], "r")) != NULL);
        if (i % 2) close(dup(fileno(f)));  // the kernel has the position from now on
        reads = 0;
        pthread_create(&thread, NULL, reader, NULL);
        while (reads < i % 20) sched_yield();
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        CHECK(ftrylockfile(f) == 0);
        funlockfile(f);
        rewind(f);
        CHECK(getc(f) != EOF && fclose(f) == 0);
    }
    return 0;
}
"""
