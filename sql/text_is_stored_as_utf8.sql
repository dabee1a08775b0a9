-- Text is stored as UTF-8, whatever the encoding of the database is.
SET client_min_messages = warning; CREATE EXTENSION IF NOT EXISTS outbox; RESET client_min_messages;
-- left behind by a run that was interrupted
SET client_min_messages = warning; DROP DATABASE IF EXISTS regression_outbox_latin1; DROP DATABASE IF EXISTS regression_outbox_ascii; RESET client_min_messages;
-- The key of a record is computed from UTF-8: a dump may be restored into another encoding.
BEGIN;
SELECT outbox_begin('caf' || chr(233)), outbox_commit();
SELECT segment FROM outbox.ring WHERE ring = 'record' AND state = 'current' \gset
SELECT key FROM outbox.record_:segment WHERE msgid = 'caf' || chr(233) \gset
ROLLBACK;
SELECT current_database() AS here \gset
CREATE DATABASE regression_outbox_latin1 TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C';
CREATE DATABASE regression_outbox_ascii TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C';

\c regression_outbox_latin1
CREATE EXTENSION outbox;
SELECT outbox_create_endpoint('th' || chr(233) || chr(226) || 'tre');
BEGIN;
SELECT outbox_begin('caf' || chr(233), 'th' || chr(233) || chr(226) || 'tre');
SELECT outbox_enqueue('utf8', 'caf' || chr(233), NULL, 'text');
SELECT outbox_enqueue('utf8', to_json('caf' || chr(233)), NULL, 'json');
SELECT outbox_enqueue('utf8', to_jsonb('caf' || chr(233)), NULL, 'jsonb');
SELECT outbox_enqueue('utf8', '"caf\u00e9"'::json, NULL, 'json, escaped');
SELECT outbox_enqueue('utf8', '"caf\u00e9"'::jsonb, NULL, 'jsonb, escaped');
SELECT outbox_enqueue('utf8', '"\u20ac"'::json, NULL, 'json, not in LATIN1');
SELECT outbox_enqueue('utf8', '\xe9'::bytea, NULL, 'bytea');
SELECT outbox_enqueue('utf8', '', NULL, 'empty');
SELECT outbox_enqueue('utf8', 'ascii', jsonb_build_object(chr(233), chr(233)), 'header');
SELECT outbox_commit();
COMMIT;
SELECT message_id, body, encode(body, 'escape') FROM outbox.log_0 ORDER BY id;
-- Names stay text of the database; they are converted when they are sent.
SELECT DISTINCT cause = 'caf' || chr(233) AS cause_as_given FROM outbox.log_0;
SELECT endpoint = 'th' || chr(233) || chr(226) || 'tre' AS endpoint_as_given FROM outbox.records;
SELECT outbox_begin('caf' || chr(233), 'th' || chr(233) || chr(226) || 'tre');
BEGIN;
SELECT outbox_begin('caf' || chr(233)), outbox_commit();
SELECT key = :'key' AS same_key_as_in_utf8 FROM outbox.record_0 WHERE endpoint IS NULL;
ROLLBACK;
-- The limit counts what is sent.
BEGIN;
SELECT outbox_enqueue('utf8', repeat(chr(233), 32 * 1024 * 1024), NULL, 'm1');
ROLLBACK;
SELECT outbox_enqueue('utf8', repeat(chr(233), 32 * 1024 * 1024) || 'x');
\echo :SQLSTATE

-- SQL_ASCII means no known encoding: what is not UTF-8 cannot be sent as text.
\c regression_outbox_ascii
CREATE EXTENSION outbox;
BEGIN;
SELECT outbox_enqueue('utf8', chr(195) || chr(169), NULL, 'valid by chance');
SELECT outbox_enqueue('utf8', '\xe9'::bytea, NULL, 'bytea');
SELECT message_id, body FROM outbox.log_0 ORDER BY id;
COMMIT;
SELECT outbox_enqueue('utf8', 'caf' || chr(233));
\echo :SQLSTATE
SELECT outbox_enqueue('caf' || chr(233), 'x');
\echo :SQLSTATE
SELECT outbox_enqueue('utf8', 'x', message_id => 'caf' || chr(233));
\echo :SQLSTATE
SELECT outbox_enqueue('utf8', 'x', jsonb_build_object('caf' || chr(233), 1));
\echo :SQLSTATE
SELECT outbox_enqueue('utf8', 'x', jsonb_build_object('h', 'caf' || chr(233)));
\echo :SQLSTATE
SELECT outbox_begin('caf' || chr(233));
\echo :SQLSTATE

\c :here
DROP DATABASE regression_outbox_latin1;
DROP DATABASE regression_outbox_ascii;
