SELECT count(pg_logical_emit_message(true, 'bench', '{"type": "BalanceChanged", "account": ' || i || ', "delta": -100}')) FROM generate_series(:first, :last) i;
