SELECT pg_logical_emit_message(true, 'probe', $1::text)
