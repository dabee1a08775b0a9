SELECT count(pgq.insert_event('bench', 'bench', '{"type": "BalanceChanged", "account": ' || i || ', "delta": -100}')) FROM generate_series(:first, :last) i;
-- The relay need not wait for a tick.
SELECT pgq.force_tick('bench');
SELECT pgq.ticker();
