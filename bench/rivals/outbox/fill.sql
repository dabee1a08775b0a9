SELECT outbox_enqueue_many('bench', array_agg('{"type": "BalanceChanged", "account": ' || i || ', "delta": -100}')) FROM generate_series(:first, :last) i;
