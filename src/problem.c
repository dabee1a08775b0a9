/*
 * problem.c
 *		Notes the problems of a database, while they last.
 *
 * A process that notices a problem calls problem_set(), and problem_clear()
 * when it is over: for most problems that is the dispatcher, for a missing
 * worker slot the launcher. Problems are kept in shared memory, so they end
 * with the server, and those of a dispatcher with that process. A loss of
 * messages does not end by itself, so it is a row of outbox.loss until a user
 * acknowledges it. Which there are, worst first, is in problem.h; the text of each stands
 * where problem_set() is called, or in problem_view.c for those that are only found
 * when they are shown.
 * Nothing here changes what any process does.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "src/problem.h"
#include "src/shared.h"

/*
 * Notes a problem of this database, or a new text of it; it begins when it is
 * first noted. The text is in the encoding of the database. Returns whether it is
 * news, even to a process that has not noted the former text itself.
 */
bool
problem_set(ProblemKind kind, const char *format,...)
{
	char		text[PROBLEM_BYTES * 2];
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return shared_mine() && problem_set_in(shared_mine(), kind, text);
}

/* The same for any database; for the launcher. */
bool
problem_set_in(DatabaseShared *shared, ProblemKind kind, const char *text)
{
	Problem    *problem = &shared->problems[kind];
	TimestampTz now = GetCurrentTimestamp();
	int			length = pg_mbcliplen(text, strlen(text), PROBLEM_BYTES - 1);
	bool		is_news;

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	is_news = problem->since == 0 || strncmp(problem->text, text, length) != 0 || problem->text[length] != '\0';
	if (problem->since == 0)
		problem->since = now;
	memcpy(problem->text, text, length);
	problem->text[length] = '\0';
	LWLockRelease(shared->lock);
	return is_news;
}

/* Notes whether there is a problem whose text is made when the view is read. */
void
problem_hold(ProblemKind kind, bool present)
{
	if (problem_is_set(kind) == present)
		return;
	if (present)
		problem_set(kind, "%s", "");
	else
		problem_clear(kind);
}

/* Notes that a problem is over. */
void
problem_clear(ProblemKind kind)
{
	DatabaseShared *shared = shared_mine();

	if (!problem_is_set(kind))
		return;
	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	shared->problems[kind].since = 0;
	LWLockRelease(shared->lock);
}

/* Check whether a problem is noted. Only for the process that notes it. */
bool
problem_is_set(ProblemKind kind)
{
	return shared_mine() && shared_mine()->problems[kind].since != 0;
}

/* Removes all problems that a dispatcher has noted, when it starts or ends. */
void
problem_clear_all(void)
{
	DatabaseShared *shared = shared_mine();

	LWLockAcquire(shared->lock, LW_EXCLUSIVE);
	for (int kind = 0; kind < PROBLEM_KINDS; kind++)
		shared->problems[kind].since = 0;
	LWLockRelease(shared->lock);
}
