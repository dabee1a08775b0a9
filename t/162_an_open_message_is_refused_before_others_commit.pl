# COMMIT and PREPARE TRANSACTION with an open message are refused before a foreign data
# wrapper commits what was done on its server. Otherwise that would be committed, and the
# message would be processed again.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Test::More;

my $node = Outbox->create('main');
$node->sql('CREATE DATABASE remote');
$node->sql('CREATE TABLE business (n integer)', 'remote');
$node->sql(<<"END");
CREATE EXTENSION postgres_fdw;
CREATE SERVER remote FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '@{[ $node->host ]}', port '@{[ $node->port ]}', dbname 'remote');
CREATE USER MAPPING FOR CURRENT_USER SERVER remote;
CREATE FOREIGN TABLE business (n integer) SERVER remote;
CREATE PROCEDURE handle() LANGUAGE plpgsql AS \$\$
BEGIN
	PERFORM outbox_begin('procedure');
	INSERT INTO business VALUES (5);
	COMMIT;
END \$\$;
CREATE FUNCTION seal() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN PERFORM outbox_commit(); RETURN NULL; END \$\$;
CREATE TABLE late (n integer);
CREATE CONSTRAINT TRIGGER seal AFTER INSERT ON late DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION seal();
END

sub refused
{
	my ($sql, $name) = @_;
	like($node->sql_error($sql), qr/^25000: message "\w+" of endpoint "default" is still open/, $name);
	return;
}

sub remote { return $node->sql(q{SELECT coalesce(string_agg(n::text, ' ' ORDER BY n), '') FROM business}, 'remote'); }

refused("BEGIN; SELECT outbox_begin('m'); INSERT INTO business VALUES (1); COMMIT", 'COMMIT of a session that has opened a message first');
refused("SELECT count(*) FROM business; BEGIN; SELECT outbox_begin('m'); INSERT INTO business VALUES (2); COMMIT AND CHAIN", '... and of one that has used the foreign server before');
refused("SELECT count(*) FROM business; SELECT outbox_begin('autocommit')", 'autocommit');
refused("SELECT count(*) FROM business; WITH i AS (INSERT INTO business VALUES (4) RETURNING outbox_begin('autocommit')) SELECT * FROM i", '... of a statement that changes rows there');
refused("SELECT count(*) FROM business; CALL handle()", 'COMMIT of a procedure');
refused("BEGIN; SELECT outbox_begin('m'); PREPARE TRANSACTION 'p'", 'PREPARE TRANSACTION');
is(remote(), '', 'nothing was committed there');

# The transaction has ended, as after any error of COMMIT.
my $session = $node->session;
$session->query("BEGIN; SELECT outbox_begin('m'); INSERT INTO business VALUES (6); COMMIT");
is($session->query('SELECT 1'), 1, 'the next statement of the session runs');
$session->{stderr} = '';
$session->query_safe("BEGIN; SELECT outbox_begin('m'); INSERT INTO business VALUES (7); SELECT outbox_commit(); COMMIT");
is(remote(), '7', '... and a message that was sealed is committed on both sides');
$session->query_safe("BEGIN; SELECT outbox_begin('deferred'); INSERT INTO business VALUES (8); INSERT INTO late VALUES (1); COMMIT");
is(remote(), '7 8', '... also if a deferred trigger seals it');
$session->query("BEGIN; SELECT outbox_begin('aborted'); SELECT 1/0; COMMIT");
unlike($session->{stderr}, qr/"aborted"/, 'COMMIT of a transaction that has failed rolls back');
$session->quit;

done_testing();
