// A tiny OpenCL driver (ICD) for tests; macros choose how it behaves.
// AT_LOAD, AT_QUERY: a statement to run when it is loaded, or asked for platforms (abort(), ...).
// PLATFORMS: how many it offers. DEVICES: how many devices. The other macros are its answers.
// It answers questions only; nothing can be compiled or run on it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef AT_LOAD
#define AT_LOAD
#endif
#ifndef AT_QUERY
#define AT_QUERY
#endif
#ifndef PLATFORMS
#define PLATFORMS 1
#endif
#ifndef DEVICES
#define DEVICES 1
#endif
#ifndef NAME
#define NAME "Fake"
#endif
#ifndef VENDOR
#define VENDOR "Fake vendor"
#endif
#ifndef VENDOR_ID
#define VENDOR_ID 0x1234
#endif
#ifndef UNIFIED
#define UNIFIED 0
#endif
#ifndef DEVICE_TYPE
#define DEVICE_TYPE 4  // GPU
#endif

typedef struct { void *entry[256]; } dispatch;
typedef struct { dispatch *table; } object;

static dispatch table;
static object platforms[4], devices[4];

__attribute__((constructor)) static void at_load(void) { AT_LOAD; }

// Whether another library is in this process.
__attribute__((unused)) static int loaded(const char *library) {
    char line[4096];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) found |= strstr(line, library) != NULL;
    fclose(maps);
    return found;
}

static int answer(const void *content, size_t length, size_t size, void *value, size_t *needed) {
    if (needed) *needed = length;
    if (value && size < length) return -30;
    if (value) memcpy(value, content, length);
    return 0;
}

static int text(const char *content, size_t size, void *value, size_t *needed) {
    return answer(content, strlen(content) + 1, size, value, needed);
}

int clGetPlatformInfo(object *platform, unsigned what, size_t size, void *value, size_t *needed) {
    switch (what) {
        case 0x900: return text("FULL_PROFILE", size, value, needed);
        case 0x901: return text("OpenCL 3.0 fake", size, value, needed);
        case 0x902: return text(NAME " platform", size, value, needed);
        case 0x903: return text(VENDOR, size, value, needed);
        case 0x904: return text("cl_khr_icd", size, value, needed);
        case 0x920: return text("FAKE", size, value, needed);
    }
    return -30;
}

static int get_devices(object *platform, unsigned long long kind, unsigned room, object **out,
                       unsigned *count) {
    if (count) *count = DEVICES;
    for (unsigned i = 0; out && i < room && i < DEVICES; i++) out[i] = &devices[i];
    return DEVICES ? 0 : -1;
}

static int get_device_info(object *device, unsigned what, size_t size, void *value,
                           size_t *needed) {
    unsigned one = 1, none = 0, vendor = VENDOR_ID, unified = UNIFIED;
    unsigned long long kind = DEVICE_TYPE, memory = 1 << 30, queue = 3;
    switch (what) {
        case 0x102B: return text(NAME, size, value, needed);
        case 0x102C: return text(VENDOR, size, value, needed);
        case 0x102D: return text("1.0", size, value, needed);
        case 0x102F: return text("OpenCL 3.0 fake", size, value, needed);
        case 0x103D: return text("OpenCL C 1.2", size, value, needed);
        case 0x1030: return text("", size, value, needed);
        case 0x1000: return answer(&kind, sizeof kind, size, value, needed);
        case 0x1001: return answer(&vendor, sizeof vendor, size, value, needed);
        case 0x1010: case 0x101F: case 0x1023:
            return answer(&memory, sizeof memory, size, value, needed);
        case 0x1026: case 0x1027: case 0x1028: case 0x1002:
            return answer(&one, sizeof one, size, value, needed);
        case 0x102A: return answer(&queue, sizeof queue, size, value, needed);
        case 0x1035: return answer(&unified, sizeof unified, size, value, needed);
    }
    return none ? 0 : -30;
}

int clIcdGetPlatformIDsKHR(unsigned room, object **out, unsigned *count) {
    AT_QUERY;
    table.entry[1] = clGetPlatformInfo;
    table.entry[2] = get_devices;
    table.entry[3] = get_device_info;
    for (int i = 0; i < 4; i++) platforms[i].table = devices[i].table = &table;
    if (count) *count = PLATFORMS;
    for (unsigned i = 0; out && i < room && i < PLATFORMS; i++) out[i] = &platforms[i];
    return PLATFORMS ? 0 : -1001;
}

void *clGetExtensionFunctionAddress(const char *name) {
    if (!strcmp(name, "clIcdGetPlatformIDsKHR")) return clIcdGetPlatformIDsKHR;
    if (!strcmp(name, "clGetPlatformInfo")) return clGetPlatformInfo;
    return NULL;
}
