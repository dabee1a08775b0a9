INSERT INTO pgboss.job (name, data) VALUES ('publish', jsonb_build_object('dest', 'probe', 'body', $1::text))
