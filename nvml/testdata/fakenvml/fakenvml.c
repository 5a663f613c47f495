/*
 * A library that answers like libnvidia-ml.so.1, for tests: it goes through the real
 * binding and the real dynamic linker. It is driven by a control file, named by the
 * environment variable FAKENVML_CONTROL, which may be replaced (by rename) at any
 * time. Each line is "key value":
 *
 *   count N                    number of GPUs (default 1)
 *   driver, cuda, nvml         versions
 *   ret.FUNCTION CODE          return code of a function, everywhere
 *   gpu.I.ret.FUNCTION CODE    ... for one GPU
 *   gpu.I.lost CODE            return code of every call for one GPU
 *   hang FUNCTION              that function does not return while the line is there
 *   slow.FUNCTION MS           that function takes so long
 *   gpu.I.KEY NUMBER           total used free reserved util memutil power limit
 *                              energy temp clock reasons ecc rows migslots gpm.ID
 *   gpu.I.uuid, gpu.I.name     texts
 *   gpu.I.field.ID TYPE NUMBER value of a field: d, u (32 bit) or l (64 bit)
 *   gpu.I.mig 0|1              MIG mode
 *   gpu.I.slot.S GI PROFILE USED   a MIG device; slots without a line are empty
 *   gpu.I.proc.N PID BYTES     a process
 *   xid.N GPU CODE             the N-th event (N from 1) is due
 *   gpmbatch 0                 batches of GPM metrics answer nonsense
 *
 * A call that an exporter must never make ends the process.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

#define MAX_KEYS 2048
#define MAX_GPUS 64
#define MAX_SLOTS 16

static struct { char key[64], value[128]; } entries[MAX_KEYS];
static int nentries;
static struct stat seen;
static int loaded;
static int initialized;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Handles are addresses of these; MIG devices have their own. */
struct nvmlDevice_st { int gpu, slot; };
static struct nvmlDevice_st gpus[MAX_GPUS];
static struct nvmlDevice_st migs[MAX_GPUS][MAX_SLOTS];

struct nvmlEventSet_st { int next; unsigned long long gpus; };
struct nvmlGpmSample_st { struct timespec at; int gpu, gi; };

static void load(void) {
	const char *path = getenv("FAKENVML_CONTROL");
	struct stat st;
	if (!path || stat(path, &st) != 0) return;
	if (loaded && st.st_ino == seen.st_ino && st.st_mtim.tv_nsec == seen.st_mtim.tv_nsec &&
	    st.st_mtim.tv_sec == seen.st_mtim.tv_sec && st.st_size == seen.st_size)
		return;
	FILE *f = fopen(path, "r");
	if (!f) return;
	char line[256];
	nentries = 0;
	while (nentries < MAX_KEYS && fgets(line, sizeof line, f)) {
		if (sscanf(line, "%63s %127[^\n]", entries[nentries].key, entries[nentries].value) == 2) nentries++;
	}
	fclose(f);
	seen = st;
	loaded = 1;
}

/* text copies the value of a key to out and reports whether there is one. */
static int text(char *out, size_t size, const char *fmt, ...) {
	char key[64];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(key, sizeof key, fmt, ap);
	va_end(ap);
	int found = 0;
	pthread_mutex_lock(&lock);
	load();
	for (int i = 0; i < nentries && !found; i++) {
		if (strcmp(entries[i].key, key) == 0) {
			snprintf(out, size, "%s", entries[i].value);
			found = 1;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static unsigned long long number(unsigned long long def, const char *fmt, ...) {
	char key[64], value[128];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(key, sizeof key, fmt, ap);
	va_end(ap);
	return text(value, sizeof value, "%s", key) ? strtoull(value, NULL, 0) : def;
}

#define NO_DEVICE ((nvmlDevice_t){NULL})

static nvmlDevice_t gpu(int i) { return (nvmlDevice_t){&gpus[i]}; }
static nvmlDevice_t mig(nvmlDevice_t d, int slot) { return (nvmlDevice_t){&migs[d.handle->gpu][slot]}; }

/* enter is the start of every call: hang, wait, and the return code to give. */
static nvmlReturn_t enter(const char *fn, nvmlDevice_t dev) {
	char hang[128];
	while (text(hang, sizeof hang, "hang") && strcmp(hang, fn) == 0) usleep(2000);
	unsigned long long ms = number(0, "slow.%s", fn);
	if (ms) usleep(ms * 1000);
	if (!initialized) return NVML_ERROR_UNINITIALIZED;
	unsigned long long ret = number(0, "ret.%s", fn);
	if (!ret && dev.handle) {
		ret = number(0, "gpu.%d.lost", dev.handle->gpu);
		if (!ret) ret = number(0, "gpu.%d.ret.%s", dev.handle->gpu, fn);
	}
	return (nvmlReturn_t)ret;
}

#define ENTER(dev) do { nvmlReturn_t r_ = enter(__func__, dev); if (r_) return r_; } while (0)
#define FATAL() do { fprintf(stderr, "fakenvml: %s must not be called\n", __func__); _exit(99); } while (0)

const char *nvmlErrorString(nvmlReturn_t r) { (void)r; FATAL(); return ""; }
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t d, nvmlPcieUtilCounter_t c, unsigned int *v) { (void)d; (void)c; (void)v; FATAL(); return 0; }

nvmlReturn_t nvmlInit_v2(void) {
	char hang[128];
	while (text(hang, sizeof hang, "hang") && strcmp(hang, "nvmlInit_v2") == 0) usleep(2000);
	unsigned long long ret = number(0, "ret.nvmlInit_v2");
	if (ret) return (nvmlReturn_t)ret;
	for (int i = 0; i < MAX_GPUS; i++) {
		gpus[i].gpu = i;
		gpus[i].slot = -1;
		for (int s = 0; s < MAX_SLOTS; s++) {
			migs[i][s].gpu = i;
			migs[i][s].slot = s;
		}
	}
	initialized++;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void) {
	if (!initialized) return NVML_ERROR_UNINITIALIZED;
	initialized--;
	return NVML_SUCCESS;
}

static nvmlReturn_t put(char *out, unsigned int size, const char *def, const char *key) {
	if (!text(out, size, "%s", key)) snprintf(out, size, "%s", def);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *v, unsigned int n) { ENTER(NO_DEVICE); return put(v, n, "590.48.01", "driver"); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *v, unsigned int n) { ENTER(NO_DEVICE); return put(v, n, "13.590.48.01", "nvml"); }
nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *v) { ENTER(NO_DEVICE); *v = (int)number(13010, "cuda"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *n) { ENTER(NO_DEVICE); *n = (unsigned int)number(1, "count"); return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int i, nvmlDevice_t *d) {
	if (i >= number(1, "count") || i >= MAX_GPUS) return NVML_ERROR_INVALID_ARGUMENT;
	ENTER(gpu(i));
	*d = gpu(i);
	return NVML_SUCCESS;
}

/* A slot's line: GPU instance, profile, bytes used. */
static int slot(nvmlDevice_t d, int *gi, char *profile, unsigned long long *used) {
	char v[128];
	if (!text(v, sizeof v, "gpu.%d.slot.%d", d.handle->gpu, d.handle->slot)) return 0;
	return sscanf(v, "%d %31s %llu", gi, profile, used) == 3;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *uuid, unsigned int n) {
	ENTER(d);
	if (d.handle->slot >= 0) snprintf(uuid, n, "MIG-%d-%d", d.handle->gpu, d.handle->slot);
	else if (!text(uuid, n, "gpu.%d.uuid", d.handle->gpu)) snprintf(uuid, n, "GPU-fa4e0000-0000-4000-8000-%012d", d.handle->gpu);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *name, unsigned int n) {
	ENTER(d);
	char base[64];
	if (!text(base, sizeof base, "gpu.%d.name", d.handle->gpu)) snprintf(base, sizeof base, "NVIDIA H100 80GB HBM3");
	if (d.handle->slot >= 0) {
		int gi; char profile[32]; unsigned long long used;
		if (!slot(d, &gi, profile, &used)) return NVML_ERROR_NOT_FOUND;
		snprintf(name, n, "%s MIG %s", base, profile);
	} else snprintf(name, n, "%s", base);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *p) {
	ENTER(d);
	memset(p, 0, sizeof *p);
	snprintf(p->busId, sizeof p->busId, "00000000:%02X:00.0", d.handle->gpu + 1);
	return NVML_SUCCESS;
}

static unsigned long long figure(nvmlDevice_t d, unsigned long long def, const char *key) {
	return number(def, "gpu.%d.%s", d.handle->gpu, key);
}

#define GIB (1024ULL * 1024 * 1024)

static void memory(nvmlDevice_t d, unsigned long long *total, unsigned long long *used, unsigned long long *freeb, unsigned long long *reserved) {
	*total = figure(d, 80 * GIB, "total");
	*reserved = figure(d, GIB / 2, "reserved");
	*used = figure(d, 10 * GIB, "used");
	if (d.handle->slot >= 0) {
		int gi; char profile[32];
		*total = 10 * GIB;
		*reserved = 0;
		slot(d, &gi, profile, used);
	}
	*freeb = d.handle->slot >= 0 ? *total - *used : figure(d, *total - *used - *reserved, "free");
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
	ENTER(d);
	if (m->version != nvmlMemory_v2) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory(d, &m->total, &m->used, &m->free, &m->reserved);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
	unsigned long long reserved;
	ENTER(d);
	memory(d, &m->total, &m->used, &m->free, &reserved);
	m->used += reserved;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *u) {
	ENTER(d);
	/* MIG mode as some drivers have it: no error, but zeros. */
	int mig = (int)figure(d, 0, "mig");
	u->gpu = mig ? 0 : (unsigned int)figure(d, 50, "util");
	u->memory = mig ? 0 : (unsigned int)figure(d, 20, "memutil");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t t, unsigned int *v) { (void)t; ENTER(d); *v = (unsigned int)figure(d, 45, "temp"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t d, nvmlTemperature_t *t) { ENTER(d); t->temperature = (int)figure(d, 45, "temp"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned int *v) { ENTER(d); *v = (unsigned int)figure(d, 250000, "power"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned int *v) { ENTER(d); *v = (unsigned int)figure(d, 700000, "limit"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t d, unsigned long long *v) { ENTER(d); *v = figure(d, 123456789, "energy"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t d, nvmlClockType_t t, unsigned int *v) { ENTER(d); *v = (unsigned int)figure(d, 1500, "clock") + (unsigned int)t; return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t d, unsigned long long *v) { ENTER(d); *v = figure(d, 4, "reasons"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *v) { ENTER(d); *v = figure(d, 4, "reasons"); return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t d, nvmlMemoryErrorType_t t, nvmlEccCounterType_t c, unsigned long long *v) {
	ENTER(d);
	*v = figure(d, 0, "ecc") + 10ULL * t + c;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t d, unsigned int *corr, unsigned int *unc, unsigned int *pending, unsigned int *failed) {
	ENTER(d);
	*corr = (unsigned int)figure(d, 0, "rows");
	*unc = 0;
	*pending = *corr > 0;
	*failed = 0;
	return NVML_SUCCESS;
}

#define PROCESSES(type) \
	ENTER(d); \
	unsigned int n = 0; \
	for (int i = 0; i < 64; i++) { \
		char v[128]; unsigned int pid; unsigned long long bytes; \
		if (!text(v, sizeof v, "gpu.%d.proc.%d", d.handle->gpu, i)) continue; \
		if (sscanf(v, "%u %llu", &pid, &bytes) != 2) continue; \
		if (n < *count) { memset(&p[n], 0, sizeof(type)); p[n].pid = pid; p[n].usedGpuMemory = bytes; } \
		n++; \
	} \
	int fits = n <= *count; \
	*count = n; \
	return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_v1_t *p) { PROCESSES(nvmlProcessInfo_v1_t); }
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_v2_t *p) { PROCESSES(nvmlProcessInfo_v2_t); }
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned int *count, nvmlProcessInfo_t *p) { PROCESSES(nvmlProcessInfo_t); }

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned int *cur, unsigned int *pending) { ENTER(d); *cur = *pending = (unsigned int)figure(d, 0, "mig"); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned int *n) { ENTER(d); *n = 7; return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned int i, nvmlDevice_t *out) {
	int gi; char profile[32]; unsigned long long used;
	ENTER(d);
	if (i >= 7 || !slot(mig(d, i), &gi, profile, &used)) return i % 2 ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
	*out = mig(d, i);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t d, unsigned int *id) {
	int gi; char profile[32]; unsigned long long used;
	ENTER(d);
	if (d.handle->slot < 0 || !slot(d, &gi, profile, &used)) return NVML_ERROR_NOT_FOUND;
	*id = (unsigned int)gi;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int n, nvmlFieldValue_t *f) {
	ENTER(d);
	for (int i = 0; i < n; i++) {
		char v[128], type; unsigned long long x;
		if (!text(v, sizeof v, "gpu.%d.field.%u", d.handle->gpu, f[i].fieldId)) { f[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED; continue; }
		if (sscanf(v, "%c %llu", &type, &x) != 2) { f[i].nvmlReturn = NVML_ERROR_UNKNOWN; continue; }
		f[i].nvmlReturn = NVML_SUCCESS;
		/* Adding is what real drivers were seen to do with a value left in. */
		switch (type) {
		case 'd': f[i].valueType = NVML_VALUE_TYPE_DOUBLE; f[i].value.dVal += (double)x; break;
		case 'u': f[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT; f[i].value.uiVal += (unsigned int)x; break;
		case 'l': f[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG; f[i].value.ullVal += x; break;
		default: f[i].valueType = (nvmlValueType_t)77;
		}
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t d, nvmlGpmSupport_t *s) {
	ENTER(d);
	if (s->version != NVML_GPM_SUPPORT_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	s->isSupportedDevice = (unsigned int)figure(d, 1, "gpm");
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *s) { s->handle = calloc(1, sizeof(struct nvmlGpmSample_st)); return NVML_SUCCESS; }
nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t s) { free(s.handle); return NVML_SUCCESS; }

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t d, nvmlGpmSample_t s) {
	ENTER(d);
	if (figure(d, 0, "mig")) return NVML_ERROR_NOT_SUPPORTED;
	s.handle->gpu = d.handle->gpu;
	s.handle->gi = -1;
	clock_gettime(CLOCK_MONOTONIC, &s.handle->at);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t d, unsigned int gi, nvmlGpmSample_t s) {
	ENTER(d);
	s.handle->gpu = d.handle->gpu;
	s.handle->gi = (int)gi;
	clock_gettime(CLOCK_MONOTONIC, &s.handle->at);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *g) {
	ENTER(NO_DEVICE);
	if (g->version != NVML_GPM_METRICS_GET_VERSION) return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	struct timespec *a = &g->sample1.handle->at, *b = &g->sample2.handle->at;
	double gap = (double)(b->tv_sec - a->tv_sec) + (double)(b->tv_nsec - a->tv_nsec) / 1e9;
	if (gap < 0.099) return NVML_ERROR_INVALID_ARGUMENT; /* too close, or in the wrong order */
	for (unsigned int i = 0; i < g->numMetrics; i++) {
		nvmlGpmMetric_t *m = &g->metrics[i];
		m->nvmlReturn = NVML_SUCCESS;
		m->value = (double)number(10ULL * m->metricId % 100, "gpu.%d.gpm.%u", g->sample1.handle->gpu, m->metricId);
		if (g->sample1.handle->gi >= 0) m->value += g->sample1.handle->gi;
		if (g->numMetrics > 1 && number(1, "gpmbatch") == 0) m->value = 7;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *s) { ENTER(NO_DEVICE); s->handle = calloc(1, sizeof(struct nvmlEventSet_st)); s->handle->next = 1; return NVML_SUCCESS; }
nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t s) { free(s.handle); return NVML_SUCCESS; }
nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t d, unsigned long long *t) { ENTER(d); *t = figure(d, nvmlEventTypeXidCriticalError, "events"); return NVML_SUCCESS; }

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t d, unsigned long long types, nvmlEventSet_t s) {
	ENTER(d);
	if (types & nvmlEventTypeXidCriticalError) s.handle->gpus |= 1ULL << d.handle->gpu;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t s, nvmlEventData_t *e, unsigned int ms) {
	for (unsigned int waited = 0;; waited += 5) {
		ENTER(NO_DEVICE);
		char v[128]; int which; unsigned long long code;
		if (text(v, sizeof v, "xid.%d", s.handle->next) && sscanf(v, "%d %llu", &which, &code) == 2) {
			s.handle->next++;
			if (s.handle->gpus & 1ULL << which) {
				memset(e, 0, sizeof *e);
				e->device = gpu(which);
				e->eventType = nvmlEventTypeXidCriticalError;
				e->eventData = code;
				e->gpuInstanceId = e->computeInstanceId = 0xFFFFFFFF;
				return NVML_SUCCESS;
			}
			continue;
		}
		if (waited >= ms) return NVML_ERROR_TIMEOUT;
		usleep(5000);
	}
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t s, nvmlEventData_t *e, unsigned int ms) { return nvmlEventSetWait_v2(s, e, ms); }
