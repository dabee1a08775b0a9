SELECT count(pgq.insert_event('bench', 'bench', '{"type": "BalanceChanged", "account": ' || i || ', "delta": -100}')) FROM generate_series(:first, :last) i;
