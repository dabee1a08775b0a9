-- A bad setting is refused when it is set, with a message that names the part and shows no password.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- left behind by a run that was interrupted
SET client_min_messages = warning; DROP ROLE IF EXISTS regress_outbox_user; RESET client_min_messages;

SET outbox.redis_url = '';
\echo :SQLSTATE
SET outbox.redis_url = 'localhost:6379';
SET outbox.redis_url = 'http://user:hunter2@localhost';
SET outbox.redis_url = 'redis://';
SET outbox.redis_url = 'redis://:hunter2@';
SET outbox.redis_url = 'redis://user:hunter2@localhost:port/0';
SET outbox.redis_url = 'redis://user:hunter2@localhost:0/0';
SET outbox.redis_url = 'redis://user:hunter2@localhost:65536/0';
SET outbox.redis_url = 'redis://user:hunter2@localhost:6379/first';
SET outbox.redis_url = 'redis://user:hunter2@localhost:6379/-1';
SET outbox.redis_url = 'redis://user:hunter%2@localhost';
SET outbox.redis_url = 'redis://user:hunter%002@localhost';
SET outbox.redis_url = 'redis://us%er:hunter2@localhost';
SET outbox.redis_url = 'redis://us@er:hunter2@localhost';
SET outbox.redis_url = 'redis://user:hunter2@[::1';
SET outbox.redis_url = 'redis://user:hunter2@[::1]6379';
SET outbox.redis_url = 'redis+sentinel://:hunter2@one,two:26380';
SET outbox.redis_url = 'redis+sentinel://:hunter2@one,/main';
SET outbox.redis_url = 'redis+sentinel://:hunter2@one:0/main';
SET outbox.redis_url = 'redis+sentinel://:hunter2@one/main/first';
SET outbox.redis_url = 'redis+sentinel://one/main/first?sentinel_password=hunter2';
SET outbox.redis_url = 'redis+sentinel://one/main?password=hunter2';
SET outbox.redis_url = 'redis+sentinel://one/main/1?sentinel_user=a&sentinel_password=hunter%2';
SET outbox.redis_url = 'redis://localhost/1?sentinel_password=hunter2';
SET outbox.redis_url = 'redis+cluster://:hunter2@one,two:6380/1';
SET outbox.redis_url = 'redis+cluster://:hunter2@one,';
SET outbox.redis_url = 'redis://user:hunter2/3@localhost/0';
SET outbox.redis_url = 'redis+sentinel://user:1/hunter2@one/main';
SET outbox.redis_url = 'unix://relative/path';
SET outbox.redis_url = 'unix:///run/redis.sock?db=1';
SELECT set_config('outbox.redis_url', 'unix:///' || repeat('x', 2000), false);
SELECT set_config('outbox.redis_url', 'redis://:' || repeat('hunter2', 500) || '@localhost', false);
\echo :SQLSTATE
ALTER ROLE current_user SET outbox.redis_url = 'redis://:hunter2@localhost:port';
\echo :SQLSTATE

-- what is accepted
SET outbox.redis_url = 'redis://localhost';
SET outbox.redis_url = 'redis://localhost/';
SET outbox.redis_url = 'redis://user:hunter2@localhost:65535/15';
SET outbox.redis_url = 'redis://:p%40ss%2Fword@redis.example';
SET outbox.redis_url = 'redis://user@[::1]:6380/1';
SET outbox.redis_url = 'unix:///run/redis@home/redis.sock';
SET outbox.redis_url = 'unix:///run/redis%3F.sock';
SET outbox.redis_url = 'redis+sentinel://one/main%40home?sentinel_password=hunter2@/';
SET outbox.redis_url = 'redis+sentinel://user:hunter2@one,two:26380,[::1]/main/1';
SET outbox.redis_url = 'redis+sentinel://user:hunter2@one,two/main/1?sentinel_user=a&sentinel_password=hunter%32';
SET outbox.redis_url = 'redis+cluster://user:hunter2@one,two:6380,[::1]/0';
RESET outbox.redis_url;

-- what is refused
SET outbox.concurrency = 'eager';
\echo :SQLSTATE
SET outbox.endpoint = '';
\echo :SQLSTATE
-- (in words that differ between versions of PostgreSQL)
\set VERBOSITY sqlstate
SET outbox.retention = 0;
SET outbox.replay_window = -1;
SET outbox.cleanup_interval = -2;
SET outbox.poll_interval = 0;
\set VERBOSITY default
SET outbox.batch_size = 0;
SET outbox.redis_data_loss = 'ignore';
SET outbox.retention = '2 apples';
-- names are reserved: a misspelled one is not taken for a setting
SET outbox.redis_ulr = 'redis://localhost';
\echo :SQLSTATE

-- Each has a description, a unit where it measures something, and the default of the documentation.
SELECT name, boot_val, unit, vartype, context, min_val, max_val
FROM pg_settings WHERE name LIKE 'outbox.%' ORDER BY name COLLATE "C";
SELECT name FROM pg_settings WHERE name LIKE 'outbox.%' AND coalesce(short_desc, '') = '';

-- An ordinary role can set what concerns its own messages, and nothing else.
CREATE ROLE regress_outbox_user;
SET ROLE regress_outbox_user;
SET outbox.endpoint = 'mine';
SET outbox.concurrency = 'pessimistic';
SET outbox.redis_url = 'redis://localhost';
\echo :SQLSTATE
SET outbox.redis_password_file = '/etc/passwd';
\echo :SQLSTATE
SET outbox.dispatch = off;
\echo :SQLSTATE
SET outbox.retention = '1 s';
\echo :SQLSTATE
ALTER ROLE regress_outbox_user SET outbox.redis_url = 'redis://localhost';
\echo :SQLSTATE
\set VERBOSITY sqlstate
SHOW outbox.redis_url;
SHOW outbox.redis_password_file;
SELECT current_setting('outbox.redis_url');
\set VERBOSITY default
SELECT name FROM pg_settings WHERE name LIKE 'outbox.redis%' ORDER BY name COLLATE "C";
RESET ROLE;
RESET outbox.endpoint;
RESET outbox.concurrency;
DROP ROLE regress_outbox_user;

-- eight sentinels will do
SET outbox.redis_url = 'redis+sentinel://a,b,c,d,e,f,g,h,i/main';
\echo :SQLSTATE
