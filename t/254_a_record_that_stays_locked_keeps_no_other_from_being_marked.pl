# More records are locked than are tried in one statement, and the table is slow, so that
# it rests after each statement. A record that stays locked does not keep the others from
# being tried.

use strict;
use warnings FATAL => 'all';

use Outbox;
use Redis;
use Test::More;

my $redis = Redis->new;
my $node = Outbox->create('main', redis => $redis);

$node->sql(<<'END');
CREATE TABLE inbox (message_id text PRIMARY KEY, dispatched boolean, dispatched_at timestamptz, note text);
CREATE INDEX ON inbox (dispatched_at);
CREATE FUNCTION be_slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.15); RETURN NULL; END $$;
CREATE TRIGGER slow BEFORE UPDATE ON inbox FOR EACH STATEMENT EXECUTE FUNCTION be_slow();
SELECT outbox_create_endpoint('own', retention => '1 hour', record_table => 'inbox');
SELECT outbox_pause();
END
$node->sql(q{BEGIN; SELECT outbox_begin('m' || i, 'own'), outbox_enqueue('d', 'x'), outbox_commit() FROM generate_series(10001, 11100) i; COMMIT});

sub unmarked { return $node->sql(q{SELECT string_agg(message_id, ' ' ORDER BY message_id) FROM inbox WHERE NOT dispatched}); }

# One record among the first thousand, and one behind them.
my ($first, $last) = map { $node->session } 1 .. 2;
$first->query_safe(q{BEGIN; SELECT FROM inbox WHERE message_id = 'm10001' FOR UPDATE});
$last->query_safe(q{BEGIN; SELECT FROM inbox WHERE message_id = 'm11100' FOR UPDATE});
$node->sql('SELECT outbox_resume()');
eventually { unmarked() eq 'm10001 m11100' } 'all are marked but two that are locked';
$last->query_safe('COMMIT');
eventually { unmarked() eq 'm10001' } 'one that is locked no more is marked, though another one stays locked';
$first->query_safe('COMMIT');
eventually { unmarked() eq '' } '... which is marked in the end';
$_->quit foreach $first, $last;

done_testing();
