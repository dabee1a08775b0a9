# The owner of a function may have it called with NULL, which PostgreSQL keeps from it otherwise.
# No function of ours takes NULL for a pointer then.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);
my $started = $node->sql('SELECT pg_postmaster_start_time()');

my @functions = split /\n/, $node->sql(<<'END');
SELECT format('BEGIN; ALTER FUNCTION %s CALLED ON NULL INPUT; SELECT %s(%s); ROLLBACK', p.oid::regprocedure, p.oid::regproc,
	(SELECT string_agg('NULL::' || format_type(type, NULL), ', ') FROM unnest(p.proargtypes) type))
FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.probin ~ 'outbox' AND l.lanname = 'c' AND p.proisstrict AND p.pronargs > 0
END
ok(@functions >= 7, 'there are functions that PostgreSQL does not call with NULL');
foreach my $call (@functions)
{
	my ($name) = $call =~ /FUNCTION (\S+\))/;
	my ($status, $out, $error) = $node->psql('postgres', $call);

	is("$out$error", '', "$name of NULL is NULL");
}
is($node->sql('SELECT pg_postmaster_start_time()'), $started, 'the server has run all the time');

done_testing();
