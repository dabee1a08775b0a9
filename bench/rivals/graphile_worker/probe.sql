SELECT graphile_worker.add_job('publish', json_build_object('dest', 'probe', 'body', $1::text))
