import { client } from "./hey/client.gen.js";
import {
  getDlqFailedTasks, getTasks, getTasksTaskIdResult, postDlqFailedTasksTaskIdRetry, postTasks, postTasksBatch,
} from "./hey/sdk.gen.js";
import type { NewTaskBody } from "./hey/types.gen.js";

client.setConfig({ baseUrl: process.argv[2] });

async function run(body: NewTaskBody): Promise<{ id: string; status: string }> {
  const { data } = await postTasks({ body });
  const id = data!.task_id;
  const ended = await getTasksTaskIdResult({ path: { task_id: id }, query: { wait: 30 } });
  return { id, status: ended.data!.status };
}

const fine = await run({ type: "noop", data: null });
const failed = await run({ type: "fail", data: {}, max_retries: 0 });
const tasks = await getTasks();
const dead = await getDlqFailedTasks({ query: { limit: 10 } });
const again = await postDlqFailedTasksTaskIdRetry({ path: { task_id: failed.id } });
const batch = await postTasksBatch({ body: { tasks: [{ type: "noop", data: 1 }] } });

console.log(JSON.stringify({
  completed: fine.status === "completed",
  listed: tasks.data!.items.some((each) => each.task_id === fine.id),
  dead: failed.status === "failed" && dead.data!.items.some((each) => each.task_id === failed.id),
  retried: again.data?.status === "pending",
  batch: batch.data!.accepted === 1,
}));
