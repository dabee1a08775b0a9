SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(
	SELECT ('publish', json_build_object('dest', 'bench', 'body', '{"type": "BalanceChanged", "account": ' || i || ', "delta": -100}'), NULL, NULL, NULL, NULL, NULL, NULL)::graphile_worker.job_spec
	FROM generate_series(:first, :last) i));
