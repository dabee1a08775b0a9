/*
 * slots.c
 *		A program for t/320: hash slots as the extension computes them.
 *
 * Writes the tag of each slot, one on a line; then the slot of each argument.
 */
#include "postgres.h"

#include <stdio.h>

#include "src/redis_cluster/hash_slot.h"

#undef printf					/* that of the server is in no library */

int
main(int argc, char **argv)
{
	for (int slot = 0; slot < HASH_SLOTS; slot++)
		puts(hash_slot_tag(slot));
	for (int i = 1; i < argc; i++)
		printf("%d\n", hash_slot_of(argv[i], strlen(argv[i])));
	return 0;
}
