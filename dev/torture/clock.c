/*
 * clock.c
 *		A wall clock that is wrong, for the PostgreSQL server of the torture: loaded
 *		by LD_PRELOAD, it adds to the time of day the seconds that stand in the file
 *		that TORTURE_CLOCK names (a double). Other clocks are left alone.
 *
 * The file is mapped into memory, so a change is seen by all processes at once,
 * and asking for the time is safe in signal handlers, where PostgreSQL does so.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

static const volatile double *offset;

__attribute__((constructor))
static void
map_offset(void)
{
	const char *path = getenv("TORTURE_CLOCK");
	int			file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void	   *memory = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);

	if (memory != MAP_FAILED)
		offset = memory;
	if (file >= 0)
		close(file);
}

int
clock_gettime(clockid_t clock, struct timespec *now)
{
	int			failed = (int) syscall(SYS_clock_gettime, clock, now);

	if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
	{
		long long	ns = now->tv_sec * BILLION + now->tv_nsec + (long long) (*offset * BILLION);

		now->tv_sec = ns / BILLION;
		now->tv_nsec = ns % BILLION;
	}
	return failed;
}

int
gettimeofday(struct timeval *now, void *zone)
{
	struct timespec exact;

	(void) zone;
	if (clock_gettime(CLOCK_REALTIME, &exact))
		return -1;
	now->tv_sec = exact.tv_sec;
	now->tv_usec = exact.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *where)
{
	struct timespec exact;

	clock_gettime(CLOCK_REALTIME, &exact);
	if (where)
		*where = exact.tv_sec;
	return exact.tv_sec;
}
