/*
 * kill_point.c
 *		Ends a process at a named line; compiled only by `make KILL_POINTS=1`.
 *
 * Called by the macros of kill_point.h, in sessions and in our own processes. A
 * test arms one point with the file outbox_kill_point in the data directory:
 *
 *	 <name> <manner> <pass>
 *
 * The process that passes the point for the <pass>-th time since it saw the
 * file (each process counts for itself) renames the file to
 * outbox_kill_point.fired, in which only one process succeeds, and then dies.
 * So a point fires once, and the successor passes it. The manners are:
 *
 *	 end		as by pg_terminate_backend(), here and now, or where interrupts are
 *				held at the first line where they are not. The others go on
 *	 kill		kill -9. The postmaster restarts all others
 *	 server	kill -9 of itself, and an immediate shutdown: no process comes to
 *				write anything down
 *
 * It must do nothing while no point is armed, and never allocate memory or
 * raise an error other than the one asked for.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "storage/fd.h"

#include "src/compat.h"
#include "src/kill_point.h"
#include "src/shared.h"

#define ARMED_FILE	"outbox_kill_point"
#define FIRED_FILE	"outbox_kill_point.fired"

typedef struct Armed
{
	char		name[64];
	char		manner[16];
	int			pass;
} Armed;

static bool read_armed(Armed *armed);
static bool is_meant(const Armed *armed, const char *prefix, const char *name);
static void end_alone(void);

/* Dies if the point "prefix_name" is armed, or "name" if the prefix is empty. */
void
kill_point_pass(const char *prefix, const char *name)
{
	static char counted[64];	/* the point that is armed */
	static int	passes;
	Armed		armed;

	if (!read_armed(&armed) || !is_meant(&armed, prefix, name))
		return;
	if (strcmp(counted, armed.name) != 0)
		passes = 0;
	strlcpy(counted, armed.name, sizeof(counted));
	if (++passes < armed.pass || durable_rename(ARMED_FILE, FIRED_FILE, DEBUG1) != 0)
		return;
	passes = 0;

	if (strcmp(armed.manner, "end") == 0)
		end_alone();
	else
	{
		if (strcmp(armed.manner, "server") == 0)
			(void) kill(PostmasterPid, SIGQUIT);
		(void) raise(SIGKILL);
	}
}

/* Reads which point is armed. Returns false if none is. */
static bool
read_armed(Armed *armed)
{
	char		line[128];
	int			file = open(ARMED_FILE, O_RDONLY);
	int			length;

	if (file < 0)
		return false;
	length = (int) read(file, line, sizeof(line) - 1);
	(void) close(file);
	line[Max(length, 0)] = '\0';
	return sscanf(line, "%63s %15s %d", armed->name, armed->manner, &armed->pass) == 3;
}

/* Check whether the point that is armed is this one. */
static bool
is_meant(const Armed *armed, const char *prefix, const char *name)
{
	size_t		length = strlen(prefix);

	if (length == 0)
		return strcmp(armed->name, name) == 0;
	return strncmp(armed->name, prefix, length) == 0 && armed->name[length] == '_' &&
		strcmp(armed->name + length + 1, name) == 0;
}

/*
 * Ends only this process. A dispatcher says that it was asked to end; otherwise the
 * launcher would wait longer each time before it starts the next one.
 */
static void
end_alone(void)
{
	DatabaseShared *shared = shared_mine();

	if (shared && pg_atomic_read_u32(&shared->dispatcher) == MyProcNumber + 1)
		pg_atomic_write_u32(&shared->farewell, FAREWELL_ASKED);
	(void) raise(SIGTERM);
	CHECK_FOR_INTERRUPTS();
}
