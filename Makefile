# Builds with PGXS: make, make install, make installcheck, make clean.
# make test and make demo need nothing installed but Debian's packages; see README.md.

EXTENSION  = outbox
MODULE_big = outbox
PGFILEDESC = "outbox - transactional outbox dispatched to Redis Streams"
DATA       = outbox--1.0.sql
SOURCES    = $(sort $(wildcard src/*.c src/*/*.c bgworker/*.c bgworker/*/*.c))
OBJS       = $(patsubst %.c,%.o,$(filter-out src/kill_point.c,$(SOURCES)))

# What Redis runs: scripts in Lua, each turned into a header with one string. (PGXS
# would install what SCRIPTS names.)
LUA_HEADERS = $(patsubst %,%.h,$(wildcard src/*/*.lua bgworker/*/*.lua))

# make KILL_POINTS=1: for tests only, see src/kill_point.h.
ifdef KILL_POINTS
OBJS += src/kill_point.o
endif

# make installcheck: against a running server that preloads the library.
REGRESS        = $(patsubst sql/%.sql,%,$(sort $(wildcard sql/*.sql)))
ISOLATION      = $(patsubst specs/%.spec,%,$(sort $(wildcard specs/*.spec)))
ISOLATION_OPTS = --load-extension=outbox
EXTRA_CLEAN    = results output_iso tmp_check log src/kill_point.o src/kill_point.bc src/exports.txt src/exports.list src/built_for $(LUA_HEADERS)

# pkg-config is asked for what is not where Debian has it.
hiredis      = $(shell pkg-config $(1) hiredis 2>/dev/null || echo $(2))
PG_CPPFLAGS  = $(call hiredis,--cflags,-I/usr/include/hiredis) -I$(libpq_srcdir) $(if $(KILL_POINTS),-DOUTBOX_KILL_POINTS)
PG_CFLAGS    = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers
SHLIB_LINK   = $(call hiredis,--libs,-lhiredis) $(libpq) $(filter -lssl -lcrypto,$(LIBS))

# The library exports what PostgreSQL looks up by name, and nothing else.
SHLIB_EXPORTS = src/exports.txt

# These need no PGXS: most build in a copy, with what they install. Their scripts are given to the shell,
# for a tree may lie where no program may run, or where files have no modes.
COMMANDS = test demo examples bench bench-consumers bench-dedup bench-fairness bench-instructions bench-lanes bench-large torture schedules model first-commands matrix dist packages images lint format

# What else is asked for takes PGXS. What is missing is told in a sentence, for
# make and the compiler only tell that it is.
goals := $(or $(MAKECMDGOALS),all)
ifneq ($(filter-out $(COMMANDS),$(goals)),)
ifeq ($(PG_CONFIG),)
PG_CONFIG := $(shell sh dev/packages --pg-config)
endif
missing := $(shell PG_CONFIG='$(PG_CONFIG)' CC='$(if $(filter-out default,$(origin CC)),$(CC))' \
	sh dev/packages --build '$(DESTDIR)' $(goals) 2>&1)
$(if $(missing),$(error $(patsubst %.,%,$(missing))))
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# What was built for another PostgreSQL, or in another way, is built again. The file is written
# here: PGXS has .SECONDARY, so that a file that is only missing has nothing built again. The rule
# is for clean, which removes it.
built_for := $(shell $(PG_CONFIG) --version)$(if $(KILL_POINTS), with kill points)
ifneq ($(filter-out clean distclean maintainer-clean,$(goals)),)
ifneq ($(built_for),$(shell cat src/built_for 2>/dev/null))
$(shell echo '$(built_for)' >src/built_for)
endif
endif
$(OBJS) $(OBJS:.o=.bc): src/built_for
src/built_for:
	echo '$(built_for)' >$@
endif

$(OBJS): $(wildcard src/*.h src/*/*.h bgworker/*.h bgworker/*/*.h)

$(OBJS) $(OBJS:.o=.bc): $(LUA_HEADERS)

# The string has all lines of the script, so that Redis tells of errors by their numbers.
%.lua.h: %.lua
	{ echo 'static const char $(notdir $*)_script[] ='; \
		sed -e 's/^[[:space:]]*--.*//' -e 's/[\\"]/\\&/g' -e 's/.*/"&\\n"/' $<; echo ';'; } >$@

# The functions that SQL calls, which PG_FUNCTION_INFO_V1 tells of; the main functions of workers.
src/exports.txt: $(OBJS)
	nm -P $^ | awk 'sub(/^pg_finfo_/, "", $$1) { print $$1; print "pg_finfo_" $$1 } \
		$$1 ~ /^(_PG_init|Pg_magic_func|outbox_[a-z]*_main)$$/ { print $$1 }' | sort -u >$@

test:
	@sh dev/run-tests

demo:
	@sh examples/demo/run

examples:
	@sh examples/run

bench:
	@sh bench/run

bench-consumers:
	@sh bench/consumers

bench-dedup:
	@sh bench/dedup

bench-fairness:
	@sh bench/fairness

bench-instructions:
	@sh bench/instructions

bench-lanes:
	@sh bench/lanes

bench-large:
	@sh bench/large

torture:
	@sh dev/torture/run

schedules:
	@sh dev/schedules/run

model:
	@sh model/run

first-commands:
	@bash dev/first-commands

matrix:
	@bash dev/matrix

dist:
	@sh dev/dist

packages:
	@bash dev/build-packages

images:
	@bash dev/build-images

lint:
	@sh dev/lint

format:
	@sh dev/packages lint
	@perl dev/format

.PHONY: $(COMMANDS)
